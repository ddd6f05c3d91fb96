// Shows the description of the interface and sends requests. All text is set as text, never as markup.

const METHODS = ["get", "put", "post", "patch", "delete"];
const SHOWN_CHARACTERS_MAX = 1_000_000;

/** Makes an element. Properties that begin with "on" are listeners; children are elements or text. */
function make(name, properties = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value !== undefined && value !== false) element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== undefined && child !== null));
  return element;
}

/** Text with the parts between backticks as code. */
function prose(text) {
  const parts = (text ?? "").split("`");
  return make("span", {}, ...parts.map((part, place) => (place % 2 ? make("code", {}, part) : part)));
}

function lookUp(description, value) {
  const seen = new Set();
  while (value?.$ref && !seen.has(value.$ref)) {
    seen.add(value.$ref);
    value = value.$ref.slice(2).split("/").reduce((at, key) => at?.[key], description);
  }
  return value ?? {};
}

const nameOf = (reference) => reference.split("/").pop();

/** A few words for a schema, with links to named ones. */
function kind(schema) {
  if (schema.$ref) return [make("a", { href: `#schema-${nameOf(schema.$ref)}` }, nameOf(schema.$ref))];
  const choices = schema.oneOf ?? schema.anyOf ?? schema.allOf;
  if (choices) {
    const word = schema.allOf ? " with " : " or ";
    return choices.flatMap((choice, place) => (place ? [word, ...kind(choice)] : kind(choice)));
  }
  if (schema.const !== undefined) return [JSON.stringify(schema.const)];
  if (schema.enum) return [schema.enum.map((value) => JSON.stringify(value)).join(" or ")];
  const types = [schema.type ?? "any"].flat();
  if (types.includes("array") && schema.items) return ["list of ", ...kind(schema.items)];
  if (types.includes("object") && typeof schema.additionalProperties === "object") {
    return ["object of ", ...kind(schema.additionalProperties)];
  }
  return [types.join(" or ")];
}

function bounds(schema) {
  const words = { minimum: "from", maximum: "to", maxLength: "characters at most", maxItems: "entries at most" };
  const said = Object.entries(words).filter(([key]) => schema[key] !== undefined);
  return said.map(([key, word]) => `${word} ${schema[key]}`).join(", ");
}

/** All that a schema says: its fields as a list, nested ones inside. */
function fields(schema) {
  const parts = [];
  for (const choice of schema.oneOf ?? schema.anyOf ?? schema.allOf ?? []) {
    if (choice.properties || choice.oneOf || choice.allOf || choice.enum) parts.push(fields(choice));
    else parts.push(make("p", {}, ...kind(choice), " ", prose(choice.description)));
  }
  if (schema.enum) parts.push(make("p", {}, ...kind(schema)));
  const properties = Object.entries(schema.properties ?? {});
  if (properties.length) {
    const rows = properties.map(([name, field]) => {
      const required = schema.required?.includes(name) ? make("em", {}, " required") : undefined;
      const inner = field.properties ?? field.items?.properties ? fields(field.items ?? field) : undefined;
      const about = make("dd", {}, ...kind(field), " ", bounds(field), " ", prose(field.description), inner);
      return [make("dt", {}, make("code", {}, name), required), about];
    });
    parts.push(make("dl", {}, ...rows.flat()));
  }
  return make("div", {}, ...parts);
}

/** An example value: a given one, or one made from the required fields. */
function sample(description, schema, depth = 0) {
  const own = lookUp(description, schema);
  if (own.example !== undefined) return own.example;
  if (own.examples?.length) return own.examples[0];
  if (own.default !== undefined) return own.default;
  if (own.const !== undefined) return own.const;
  if (own.enum) return own.enum[0];
  const choices = own.oneOf ?? own.anyOf ?? own.allOf;
  if (choices?.length && depth < 6) return sample(description, choices[0], depth + 1);
  const type = [own.type].flat().find((name) => name !== "null");
  if (type === "array") return depth < 6 && own.items ? [sample(description, own.items, depth + 1)] : [];
  if (type === "object" || own.properties) {
    const wanted = Object.entries(own.properties ?? {}).filter(([name]) => own.required?.includes(name));
    return Object.fromEntries(wanted.map(([name, field]) => [name, sample(description, field, depth + 1)]));
  }
  return { integer: own.minimum ?? 0, number: 0, boolean: false, string: "" }[type] ?? null;
}

function exampleOf(description, media) {
  if (media?.example !== undefined) return media.example;
  const first = Object.values(media?.examples ?? {})[0];
  if (first) return lookUp(description, first).value;
  return media?.schema ? sample(description, media.schema) : undefined;
}

const asText = (value) => (typeof value === "string" ? value : JSON.stringify(value, null, 2));

function answers(description, operation) {
  const rows = Object.entries(operation.responses ?? {}).map(([status, reference]) => {
    const response = lookUp(description, reference);
    const contents = Object.entries(response.content ?? {}).map(([type, media]) => {
      const example = media.example ?? Object.values(media.examples ?? {})[0]?.value;
      const shown = example === undefined ? undefined : make("pre", {}, asText(example));
      return make("div", {}, make("code", {}, type), " ", ...(media.schema ? kind(media.schema) : []), shown);
    });
    return [make("dt", {}, status), make("dd", {}, prose(response.description), ...contents)];
  });
  return make("dl", { class: "answers" }, ...rows.flat());
}

/** What a person filled in, as a request; throws with the name of what is missing. */
function compose(method, path, operation, inputs, body) {
  const query = new URLSearchParams();
  const headers = {};
  for (const { parameter, input } of inputs) {
    if (input.value === "") {
      if (parameter.required) throw new Error(`${parameter.name} is required`);
    } else if (parameter.in === "path") path = path.replace(`{${parameter.name}}`, encodeURIComponent(input.value));
    else if (parameter.in === "query") query.append(parameter.name, input.value);
    else if (parameter.in === "header") headers[parameter.name] = input.value;
  }
  const text = query.toString();
  const request = { method: method.toUpperCase(), headers, cache: "no-store" };
  if (body && body.value !== "") {
    headers["content-type"] = Object.keys(operation.requestBody.content)[0];
    request.body = body.value;
  }
  return { url: text ? `${path}?${text}` : path, request };
}

/** The same request for a shell. */
function command({ url, request }) {
  const quote = (text) => `'${text.replaceAll("'", `'\\''`)}'`;
  const headers = Object.entries(request.headers).map(([name, value]) => ` -H ${quote(`${name}: ${value}`)}`);
  const method = request.method === "GET" ? "" : ` -X ${request.method}`;
  const data = request.body === undefined ? "" : ` --data-binary ${quote(request.body)}`;
  return `curl -N${method} ${quote(location.origin + url)}${headers.join("")}${data}`;
}

/** Reads an answer, which may be a stream without end, into an element. */
async function show(response, shown) {
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  while (reader && text.length < SHOWN_CHARACTERS_MAX) {
    const { done, value } = await reader.read();
    if (done) break;
    text += value;
    shown.textContent = text;
  }
  if (text.length >= SHOWN_CHARACTERS_MAX) await reader.cancel();
  if (response.headers.get("content-type")?.includes("json")) {
    try {
      shown.textContent = JSON.stringify(JSON.parse(text), null, 2);
    } catch {
      shown.textContent = text;
    }
  }
}

/** The form of an operation. */
function trial(description, method, path, operation) {
  const inputs = (operation.parameters ?? []).map((reference) => {
    const parameter = lookUp(description, reference);
    const schema = lookUp(description, parameter.schema);
    const id = `${operation.operationId}-${parameter.name}`;
    const hint = String(parameter.example ?? schema.example ?? schema.examples?.[0] ?? "");
    const input = make("input", { id, autocomplete: "off", spellcheck: "false", placeholder: hint });
    if (parameter.in === "path") input.required = true;
    const required = parameter.required ? make("em", {}, " required") : undefined;
    const about = make("small", {}, `${parameter.in}, `, ...kind(parameter.schema ?? {}), " ", bounds(schema), " ");
    about.append(prose(parameter.description));
    const label = make("label", { for: id }, make("code", {}, parameter.name), required);
    return { parameter, input, row: make("div", { class: "field" }, label, input, about) };
  });
  const media = Object.values(operation.requestBody?.content ?? {})[0];
  const body = media ? make("textarea", { id: `${operation.operationId}-body`, rows: 8, spellcheck: "false" }) : null;
  if (body) body.value = asText(exampleOf(description, media)) ?? "";
  const [status, headers, shown, shell] = ["p", "pre", "pre", "pre"].map((name) => make(name));
  const answer = make("div", { class: "answer", hidden: true }, shell, status, headers, shown);
  status.setAttribute("role", "status");
  let running = null;
  const stop = make("button", { type: "button", disabled: true, onclick: () => running?.abort() }, "Stop");
  const send = async (event) => {
    event.preventDefault();
    running?.abort();
    const own = (running = new AbortController());
    answer.hidden = false;
    for (const element of [shell, status, headers, shown]) element.textContent = "";
    try {
      const composed = compose(method, path, operation, inputs, body);
      shell.textContent = command(composed);
      stop.disabled = false;
      const begun = performance.now();
      const response = await fetch(composed.url, { ...composed.request, signal: own.signal });
      status.textContent = `${response.status} ${response.statusText}, ${Math.round(performance.now() - begun)} ms`;
      headers.textContent = [...response.headers].map(([name, value]) => `${name}: ${value}`).join("\n");
      await show(response, shown);
    } catch (error) {
      status.textContent = error.name === "AbortError" ? `${status.textContent} stopped` : String(error.message);
    } finally {
      if (running === own) stop.disabled = true;
    }
  };
  const fieldOfBody = body && [make("label", { for: body.id }, "Body"), " ", ...kind(media.schema ?? {}), body];
  const rows = [...inputs.map(({ row }) => row), ...(fieldOfBody ?? [])];
  return make("form", { onsubmit: send }, ...rows, make("button", {}, "Send"), " ", stop, answer);
}

function card(description, method, path, operation) {
  const id = `op-${operation.operationId}`;
  const title = make("summary", {}, make("b", { class: method }, method.toUpperCase()), " ", make("code", {}, path), " ");
  title.append(prose(operation.summary));
  const body = lookUp(description, Object.values(operation.requestBody?.content ?? {})[0]?.schema);
  const element = make("details", { id, class: "operation" }, title);
  // Filled when it is opened first: the whole interface at once would be slow.
  element.addEventListener("toggle", () => {
    if (element.childElementCount > 1) return;
    element.append(make("p", {}, prose(operation.description)), trial(description, method, path, operation));
    if (operation.requestBody) element.append(make("h4", {}, "Fields of the body"), fields(body));
    element.append(make("h4", {}, "Answers"), answers(description, operation));
  });
  return element;
}

function render(description) {
  const [main, contents] = ["operations", "contents"].map((id) => document.getElementById(id));
  document.getElementById("title").textContent = `${description.info.title} ${description.info.version} over HTTP`;
  document.getElementById("about").textContent = description.info.description ?? "";
  const all = Object.entries(description.paths).flatMap(([path, item]) =>
    METHODS.filter((method) => item[method]).map((method) => ({ path, method, operation: item[method] })),
  );
  const cards = [];
  for (const tag of description.tags ?? []) {
    const own = all.filter(({ operation }) => operation.tags?.includes(tag.name));
    const elements = own.map(({ method, path, operation }) => card(description, method, path, operation));
    cards.push(...elements);
    contents.append(make("a", { href: `#tag-${tag.name}` }, tag.name));
    const heading = make("h2", { id: `tag-${tag.name}` }, tag.name);
    main.append(make("section", {}, heading, make("p", {}, prose(tag.description)), ...elements));
  }
  const schemas = Object.entries(description.components?.schemas ?? {}).map(([name, schema]) => {
    const element = make("details", { id: `schema-${name}` }, make("summary", {}, make("code", {}, name)));
    element.append(make("p", {}, prose(schema.description)), fields(schema));
    return element;
  });
  contents.append(make("a", { href: "#schemas" }, "schemas"));
  main.append(make("section", {}, make("h2", { id: "schemas" }, "schemas"), ...schemas));
  const filter = document.getElementById("filter");
  filter.addEventListener("input", () => {
    const wanted = filter.value.toLowerCase();
    for (const element of cards) {
      element.hidden = !element.firstElementChild.textContent.toLowerCase().includes(wanted);
    }
  });
}

/** Opens what the address names. */
function follow() {
  const element = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (element?.tagName === "DETAILS") element.open = true;
  element?.scrollIntoView();
}

try {
  const response = await fetch("/v1/openapi.json");
  if (!response.ok) throw new Error(`the description was answered with status ${response.status}`);
  render(await response.json());
  addEventListener("hashchange", follow);
  follow();
} catch (error) {
  document.getElementById("operations").textContent = `This page cannot be shown: ${error.message}`;
}
