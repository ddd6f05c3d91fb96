// Reads the page of a door in a browser without a window, and sends a request from it.
//
//     node page.mjs http://localhost:7500
//
// Ends with 77 if no browser starts on this machine.

import chromium from '@sparticuz/chromium';
import puppeteer from 'puppeteer-core';

const door = process.argv[2];
const limit = { timeout: 20_000 };

let browser;
try {
    const executablePath = process.env.CHROMIUM || (await chromium.executablePath());
    browser = await puppeteer.launch({ args: [...chromium.args, '--no-sandbox'], executablePath, headless: 'shell' });
} catch (error) {
    console.log(`no browser starts: ${error.message.split('\n')[0]}`);
    process.exit(77);
}
const page = await browser.newPage();
const problems = [];
page.on('console', message => ['error', 'warn'].includes(message.type()) && problems.push(message.text()));
page.on('pageerror', error => problems.push(error.message));
page.on('requestfailed', request => request.response() || problems.push(`${request.url()}: ${request.failure()?.errorText}`));
page.on('request', request => request.url().startsWith(door) || problems.push(`${request.url()} is elsewhere`));

/** Opens an operation by the beginning of its line, sends its example, and waits for this status. */
async function send(line, status) {
    const found = await page.evaluate(line => {
        const summary = [...document.querySelectorAll('summary')].find(one => one.innerText.trim().startsWith(line));
        summary?.click();
        return Boolean(summary);
    }, line);
    if (!found) throw new Error(`the page does not show ${line}`);
    const shows = (line, text) => {
        const summary = [...document.querySelectorAll('summary')].find(one => one.innerText.trim().startsWith(line));
        return [...summary.parentElement.querySelectorAll('button, p, output')].find(one => one.innerText.trim().startsWith(text));
    };
    const button = await page.waitForFunction(shows, limit, line, 'Send');
    await button.click();
    await page.waitForFunction(shows, limit, line, String(status));
    console.log(`${line}: ${status}`);
}

let failed = false;
try {
    await page.goto(`${door}/`, { waitUntil: 'networkidle0', ...limit });
    await send('POST /v1/tasks ', 201);
    await send('GET /v1/queues', 200);
} catch (error) {
    problems.push(error.message);
}
for (const problem of problems) {
    console.log(`the page: ${problem}`);
    failed = true;
}
await browser.close();
process.exit(failed ? 1 : 0);
