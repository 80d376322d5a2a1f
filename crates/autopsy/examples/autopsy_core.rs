//! `cargo run --release --example autopsy_core -- CORE [--json]`: look at a core file by hand.

// An example is a command line: printing is what it is for.
#![allow(clippy::print_stdout)]

use std::path::Path;
use std::time::Instant;

use lastwords_autopsy::{Autopsy, Limits, from_core};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some(path) = arguments.first() else {
        println!("usage: autopsy_core CORE [--json]");
        return;
    };
    let start = Instant::now();
    let core = match from_core(Path::new(path), &Limits::default()) {
        Ok(core) => core,
        Err(error) => return println!("{error}"),
    };
    let took = start.elapsed();
    if arguments.iter().any(|argument| argument == "--json") {
        return println!("{}", serde_json::to_string_pretty(&core).unwrap_or_default());
    }
    println!(
        "pid {:?}, {:?}, signal {:?} code {:?} address {:x?}, {} threads, {took:?}",
        core.pid,
        core.command,
        core.signal,
        core.signal_code,
        core.fault_address,
        core.threads.len(),
    );
    for thread in &core.threads {
        println!("thread {}: {}", thread.tid, thread.autopsy.stopped_because);
        show(&thread.autopsy);
    }
    println!("{:#?}", core.notes);
}

fn show(autopsy: &Autopsy) {
    if let Some(instruction) = &autopsy.instruction {
        println!("  {}  needs {:?}", instruction.text, instruction.extensions);
    }
    for (number, frame) in autopsy.frames.iter().enumerate() {
        let library = frame
            .library
            .as_deref()
            .unwrap_or("?")
            .rsplit('/')
            .next()
            .unwrap_or("?");
        println!(
            "  #{number} {:#x} {} {library} {}:{} {:?}{}",
            frame.address,
            frame.function.as_deref().unwrap_or("??"),
            frame.file.as_deref().unwrap_or(""),
            frame.line.unwrap_or(0),
            frame.trust,
            if frame.inlined { " inlined" } else { "" },
        );
    }
}
