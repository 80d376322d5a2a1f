//! What the autopsy says beyond the stack: signal, instruction, addresses.

mod support;

use lastwords_autopsy::{CoreAutopsy, Limits, Trust, from_core};
use support::{Victim, obstacle, skip};

fn death(how: &str) -> Option<CoreAutopsy> {
    if let Some(reason) = obstacle() {
        skip(&reason);
        return None;
    }
    let victim = Victim::compile("deaths.c", &["-g"]);
    let core = victim.die(&[how]).ok()?;
    Some(from_core(&core, &Limits::default()).unwrap())
}

#[test]
fn who_died_of_what() {
    let Some(core) = death("null-read") else { return };
    assert_eq!((core.signal, core.signal_code), (Some(libc::SIGSEGV), Some(1)));
    assert_eq!(core.fault_address, Some(0));
    assert_eq!(core.name.as_deref(), Some("victim"));
    assert!(core.command.unwrap().ends_with("victim null-read"));
    assert!(core.executable.unwrap().ends_with("/victim"));
    assert_eq!(core.pid, Some(core.threads[0].tid));
    assert!(!core.truncated);
    let autopsy = &core.threads[0].autopsy;
    assert_eq!(autopsy.stopped_because, "outermost frame");
    assert_eq!(autopsy.frames.last().unwrap().function.as_deref(), Some("_start"));
    let instruction = autopsy.instruction.as_ref().unwrap();
    assert!(instruction.is_valid && instruction.extensions.is_empty());
    assert_eq!(instruction.memory[0].address, Some(0));
    let place = autopsy.address_in.as_ref().unwrap();
    assert!(place.fault_mapping.is_none() && place.nearest_mapping.is_some());
    assert_eq!(place.pc_mapping.as_ref().unwrap().permissions, "r-xp");
}

#[test]
fn a_call_through_a_null_pointer_names_the_caller() {
    let Some(core) = death("null-call") else { return };
    let frames = &core.threads[0].autopsy.frames;
    assert_eq!((frames[0].address, frames[0].trust), (0, Trust::Context));
    assert_eq!(
        (frames[1].function.as_deref(), frames[1].trust),
        (Some("null_call"), Trust::Scan)
    );
    assert_eq!(frames[2].trust, Trust::Cfi);
    assert!(core.threads[0].autopsy.instruction.is_none());
}

#[test]
fn an_instruction_this_cpu_lacks_names_its_extension() {
    let Some(core) = death("fma4") else { return };
    let instruction = core.threads[0].autopsy.instruction.as_ref().unwrap();
    assert_eq!(instruction.extensions, ["fma4"]);
    assert_eq!(core.signal, Some(libc::SIGILL));
    assert!(!instruction.is_trap);
}

#[test]
fn a_symbol_without_a_size_reaches_to_the_next_one() {
    let Some(core) = death("sizeless") else { return };
    let frames = &core.threads[0].autopsy.frames;
    assert_eq!(frames[0].function.as_deref(), Some("sizeless"));
    assert_eq!(frames[0].offset_in_function, Some(1));
    assert_eq!(
        (frames[1].function.as_deref(), frames[1].trust),
        (Some("die"), Trust::Scan)
    );
    assert_eq!(frames.last().unwrap().function.as_deref(), Some("_start"));
}

#[test]
fn a_deliberate_trap_is_one() {
    let Some(core) = death("trap") else { return };
    assert!(core.threads[0].autopsy.instruction.as_ref().unwrap().is_trap);
}

#[test]
fn a_non_canonical_address_is_recomputed() {
    let Some(core) = death("non-canonical") else {
        return;
    };
    assert_eq!((core.signal_code, core.fault_address), (Some(128), Some(0)));
    let place = core.threads[0].autopsy.address_in.as_ref().unwrap();
    assert!(place.recomputed);
    assert_eq!(place.fault_address, Some(0xdead_0000_0000_0010));
    assert_eq!(place.canonical, Some(false));
}

#[test]
fn a_stack_overflow_keeps_both_ends() {
    let Some(core) = death("recursion") else { return };
    let autopsy = &core.threads[0].autopsy;
    let omitted = autopsy.omitted.as_ref().unwrap();
    assert!(omitted.count.unwrap() > 1000);
    assert_eq!(autopsy.frames[0].function.as_deref(), Some("recurse"));
    assert_eq!(autopsy.frames.last().unwrap().function.as_deref(), Some("_start"));
    assert!(autopsy.address_in.as_ref().unwrap().distance_to_sp.unwrap().abs() < 4096);
}

#[test]
fn the_thread_that_crashed_comes_first() {
    let Some(core) = death("thread") else { return };
    assert_eq!(core.threads.len(), 2);
    assert_ne!(core.pid, Some(core.threads[0].tid));
    let frames = &core.threads[0].autopsy.frames;
    assert!(
        frames
            .iter()
            .any(|frame| frame.function.as_deref() == Some("in_thread"))
    );
    assert!(core.threads[1].autopsy.instruction.is_none());
}

#[test]
fn a_signal_that_was_sent_has_a_sender_and_no_address() {
    let Some(core) = death("abort") else { return };
    assert_eq!((core.signal, core.fault_address), (Some(libc::SIGABRT), None));
    assert_eq!(core.sender_pid, core.pid);
}

#[test]
fn it_serialises_with_plain_names() {
    let Some(core) = death("divide") else { return };
    let json = serde_json::to_value(&core).unwrap();
    assert_eq!(json["signal"], libc::SIGFPE);
    assert_eq!(json["threads"][0]["autopsy"]["frames"][0]["trust"], "context");
    assert_eq!(json["threads"][0]["autopsy"]["instruction"]["mnemonic"], "idiv");
    assert!(json["threads"][0]["registers"]["rip"].is_u64());
}
