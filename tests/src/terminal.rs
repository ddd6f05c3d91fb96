//! A program at a pseudo terminal, as a person uses it.

use crate::wait::received;
use rustix::fs::{Mode, OFlags, open};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command};
use std::sync::mpsc;

/// A program at a terminal. Dropping it kills the program.
#[derive(Debug)]
pub struct Terminal {
    child: Child,
    keyboard: File,
    screen: mpsc::Receiver<Vec<u8>>,
    /// Output that was received but not searched yet.
    shown: Vec<u8>,
}

impl Terminal {
    /// Starts a program. The terminal is not its controlling terminal, so while no line is edited a test sends the signal of Ctrl-C
    /// itself.
    pub fn start(command: &mut Command) -> Terminal {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY;
        let keyboard = openpt(flags).expect("there are pseudo terminals");
        grantpt(&keyboard).and_then(|()| unlockpt(&keyboard)).expect("it is ours");
        let name = ptsname(&keyboard, Vec::new()).expect("it has a name");
        let side =
            || File::from(open(name.as_c_str(), OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).expect("it opens"));
        command.stdin(side()).stdout(side()).stderr(side()).env("TERM", "xterm");
        let child = command.spawn().expect("the binary runs");
        let keyboard = File::from(keyboard);
        let mut screen = keyboard.try_clone().expect("it can be shared");
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = screen.read(&mut bytes) {
                if sender.send(bytes[..count].to_vec()).is_err() {
                    break;
                }
            }
        });
        Terminal { child, keyboard, screen: receiver, shown: Vec::new() }
    }

    /// Types the text at once.
    pub fn types(&mut self, text: &str) {
        self.keyboard.write_all(text.as_bytes()).expect("it reads");
    }

    /// Sends the signal of Ctrl-C.
    pub fn interrupt(&self) {
        kill_process(Pid::from_child(&self.child), Signal::INT).expect("it runs");
    }

    /// Whether the program handles SIGINT, so that Ctrl-C does not end it.
    pub fn hears_interrupts(&self) -> bool {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("it runs");
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).expect("it says so");
        let caught = u64::from_str_radix(caught.trim(), 16).expect("it is a set");
        caught & (1 << (Signal::INT.as_raw() - 1)) != 0
    }

    /// Waits until the text is shown. Returns all output since the previous call, up to the end of the text.
    pub fn shows(&mut self, text: &str) -> String {
        loop {
            let found = self.shown.windows(text.len()).position(|window| window == text.as_bytes());
            if let Some(place) = found {
                let shown: Vec<u8> = self.shown.drain(..place + text.len()).collect();
                return String::from_utf8_lossy(&shown).into_owned();
            }
            let what = format!("{text:?} is shown after {:?}", String::from_utf8_lossy(&self.shown));
            self.shown.extend(received(&what, &self.screen));
        }
    }

    /// Waits until the program exits, and returns its exit code.
    pub fn end(mut self) -> Option<i32> {
        self.child.wait().expect("it ends").code()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
