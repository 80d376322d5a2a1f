//! Byte sequences whose meaning is known from the manuals.

use super::*;

fn registers(set: &[(&str, u64)]) -> Registers {
    let names = Architecture::X86_64.register_names();
    let mut values = vec![0; names.len()];
    for (name, value) in set {
        values[names.iter().position(|known| known == name).unwrap()] = *value;
    }
    Registers {
        architecture: Architecture::X86_64,
        values,
    }
}

fn decoded(bytes: &[u8], set: &[(&str, u64)]) -> Instruction {
    decode(bytes, ByteSource::Memory, &registers(set)).unwrap()
}

#[test]
fn fma_needs_fma_and_reads_at_the_recomputed_address() {
    let bytes = [0xc4, 0xe2, 0x6d, 0xb8, 0x04, 0x87];
    let instruction = decoded(&bytes, &[("rdi", 0x1000), ("rax", 4)]);
    assert_eq!(instruction.text, "vfmadd231ps ymm0, ymm2, [rdi+rax*4]");
    assert_eq!(instruction.mnemonic, "vfmadd231ps");
    assert_eq!(instruction.extensions, ["fma"]);
    assert_eq!(instruction.bytes, "c4e26db80487");
    let access = &instruction.memory[0];
    assert_eq!(
        (access.text.as_str(), access.address),
        ("[rdi+rax*4]", Some(0x1010))
    );
    assert_eq!((access.read, access.write, access.size), (true, false, Some(32)));
}

#[test]
fn amds_fma4_is_a_valid_instruction() {
    let instruction = decoded(&[0xc4, 0xe3, 0x79, 0x68, 0xc0, 0x00], &[]);
    assert_eq!(
        (instruction.mnemonic.as_str(), instruction.is_valid),
        ("vfmaddps", true)
    );
    assert_eq!(instruction.extensions, ["fma4"]);
}

#[test]
fn evex_names_every_flag() {
    // vaddps ymm0, ymm1, ymm16
    let instruction = decoded(&[0x62, 0xb1, 0x74, 0x28, 0x58, 0xc0], &[]);
    assert_eq!(instruction.extensions, ["avx512vl", "avx512f"]);
}

#[test]
fn small_extensions_have_cpuinfo_names() {
    for (bytes, flag) in [
        (&[0xf3, 0x48, 0x0f, 0xbd, 0xc7][..], "abm"),
        (&[0xc4, 0xe2, 0xf9, 0xf7, 0xc7], "bmi2"),
        (&[0x66, 0x48, 0x0f, 0x3a, 0x22, 0xc0, 0x01], "sse4_1"),
        (&[0xf3, 0x48, 0x0f, 0xb8, 0xc7], "popcnt"),
        (&[0xc5, 0xfd, 0xfe, 0xc0], "avx2"),
    ] {
        assert_eq!(decoded(bytes, &[]).extensions, [flag]);
    }
    assert!(decoded(&[0x48, 0x8b, 0x00], &[]).extensions.is_empty());
    assert!(
        decoded(&[0xf3, 0x0f, 0x1e, 0xfa], &[]).extensions.is_empty(),
        "endbr64 is a no-op elsewhere"
    );
}

#[test]
fn traps_privileged_and_invalid_are_told_apart() {
    assert!(decoded(&[0x0f, 0x0b], &[]).is_trap);
    assert!(decoded(&[0xcc], &[]).is_trap);
    assert!(decoded(&[0xf4], &[]).is_privileged);
    let invalid = decoded(&[0x06; 15], &[]);
    assert!(!invalid.is_valid && !invalid.is_trap);
}

#[test]
fn a_non_canonical_pointer_is_recomputed() {
    let instruction = decoded(&[0x48, 0x8b, 0x46, 0x08], &[("rsi", 0xdead_0000_0000_0000)]);
    assert_eq!(instruction.memory[0].address, Some(0xdead_0000_0000_0008));
    assert_eq!(instruction.memory[0].canonical, Some(false));
    let rsi = instruction
        .registers_used
        .iter()
        .find(|used| used.name == "rsi")
        .unwrap();
    assert_eq!(rsi.value, Some(0xdead_0000_0000_0000));
}

#[test]
fn implicit_stack_accesses_are_seen() {
    let push = decoded(&[0x55], &[("rsp", 0x7000)]);
    assert_eq!(push.memory[0].address, Some(0x6ff8));
    assert!(push.memory[0].write && !push.memory[0].read);
    let call = decoded(&[0xff, 0x17], &[("rsp", 0x7000), ("rdi", 0x10)]);
    let texts: Vec<_> = call.memory.iter().map(|access| access.text.as_str()).collect();
    assert!(
        texts.contains(&"[rdi]") && texts.contains(&"[rsp-0x8]"),
        "{texts:?}"
    );
}

#[test]
fn thread_local_addresses_stay_unknown() {
    let instruction = decoded(&[0x64, 0x48, 0x8b, 0x04, 0x25, 0x28, 0, 0, 0], &[]);
    assert_eq!(instruction.memory[0].address, None);
}

#[test]
fn truncated_bytes_are_no_verdict() {
    let error = decode(&[0xc4, 0xe2], ByteSource::Memory, &registers(&[])).unwrap_err();
    assert!(error.contains("2 bytes"));
}

#[test]
fn calls_are_recognised_from_behind() {
    assert!(ends_in_call(&[0x90, 0x90, 0xe8, 1, 2, 3, 4]));
    assert!(ends_in_call(&[0x90, 0x90, 0x90, 0x90, 0x90, 0xff, 0xd0]));
    assert!(ends_in_call(&[0x90, 0x90, 0x90, 0x90, 0x41, 0xff, 0xd4]));
    assert!(ends_in_call(&[0x90, 0xff, 0x15, 1, 2, 3, 4]));
    assert!(!ends_in_call(&[0x90; 7]));
    assert!(!ends_in_call(&[0x90, 0x90, 0x90, 0x90, 0x90, 0x0f, 0x05]));
}
