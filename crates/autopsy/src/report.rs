//! What comes out. Facts only: what they mean is for the causes to say.

use serde::Serialize;

/// Everything that one snapshot told.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Autopsy {
    /// Innermost first.
    pub frames: Vec<Frame>,
    /// Why the walk ended; "outermost frame" is the good end.
    pub stopped_because: String,
    /// Frames left out of the middle of a stack deeper than the limit.
    pub omitted: Option<Omitted>,
    /// The instruction at the program counter.
    pub instruction: Option<Instruction>,
    /// Where the fault address and the program counter point.
    pub address_in: Option<AddressUse>,
    /// Bytes at the program counter in memory against those in the file: `false` means that the code
    /// changed after it was loaded (a bit flip, a patch) or that the file on disk is another one.
    pub code_matches_file: Option<bool>,
    /// Paths of the files that the process had code from, sorted.
    pub libraries: Vec<String>,
    /// What functions close to the end were called with, where that is certain.
    pub arguments: Arguments,
    /// For maintainers and the curious: what could not be done, and why.
    pub notes: Vec<String>,
}

/// Arguments of the calls that led to the end. Registers are overwritten soon: mostly these are gone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Arguments {
    /// Bytes that `operator new` was asked for when it threw.
    pub asked_of_new: Option<u64>,
    /// The text behind `Fatal Python error:`, where the caller passed a constant.
    pub fatal_text: Option<String>,
}

/// A gap in `Autopsy::frames`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Omitted {
    /// Index in `frames` of the first frame after the gap.
    pub before_frame: usize,
    /// Physical frames left out; unknown where the stack between was not saved.
    pub count: Option<usize>,
}

/// How a frame was found, from best to worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Trust {
    /// From the saved registers themselves.
    Context,
    /// By the compiler's unwind tables.
    Cfi,
    /// Found on the stack, and the instruction before it is a call.
    Scan,
    /// Found on the stack, and it points at code. No more than that.
    Guess,
}

/// One frame, physical or inlined.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Frame {
    /// The program counter; for callers the return address, as gdb shows it.
    pub address: u64,
    /// Demangled.
    pub function: Option<String>,
    /// As in the symbol table.
    pub raw_function: Option<String>,
    /// Bytes from the start of the function's symbol to `address`.
    pub offset_in_function: Option<u64>,
    /// Path of the file that the code was mapped from.
    pub library: Option<String>,
    /// `address` as the ELF file numbers it.
    pub offset_in_library: Option<u64>,
    /// Hexadecimal.
    pub build_id: Option<String>,
    /// Source file.
    pub file: Option<String>,
    /// Source line.
    pub line: Option<u32>,
    /// Inlined into the next frame of this list that is not.
    pub inlined: bool,
    /// A signal handler was called here: the frame below it did not call anything.
    pub signal_frame: bool,
    /// How it was found.
    pub trust: Trust,
}

/// The faulting instruction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Instruction {
    /// Where it is.
    pub address: u64,
    /// Hexadecimal.
    pub bytes: String,
    /// Intel syntax.
    pub text: String,
    /// Lower case.
    pub mnemonic: String,
    /// Everything the CPU must have beyond baseline x86-64, named as in /proc/cpuinfo.
    pub extensions: Vec<String>,
    /// Explicit and implicit (push, call, string instructions) memory operands.
    pub memory: Vec<MemoryAccess>,
    /// ud2, int3 and the like: made to fault.
    pub is_trap: bool,
    /// Only the kernel may run it (hlt, in, wrmsr).
    pub is_privileged: bool,
    /// `false`: these bytes are no instruction.
    pub is_valid: bool,
    /// Where the bytes came from.
    pub source: ByteSource,
    /// General purpose registers it reads or writes.
    pub registers_used: Vec<RegisterUse>,
}

/// Where the bytes of an instruction came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ByteSource {
    /// The dead process.
    Memory,
    /// The library on disk, because memory was not saved.
    File,
}

/// One memory operand.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MemoryAccess {
    /// `[rdi+rax*4]`
    pub text: String,
    /// Recomputed from the registers; unknown for fs/gs and for gathers.
    pub address: Option<u64>,
    /// No hardware of 48-bit addresses can reach it; the signal then says address 0.
    pub canonical: Option<bool>,
    /// The instruction reads it.
    pub read: bool,
    /// The instruction writes it.
    pub write: bool,
    /// Bytes, where the instruction fixes it.
    pub size: Option<u64>,
}

/// A register that the instruction touches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RegisterUse {
    /// Full width.
    pub name: String,
    /// At the fault.
    pub value: Option<u64>,
    /// The instruction reads it.
    pub read: bool,
    /// The instruction writes it.
    pub write: bool,
}

/// Where the fault address and the program counter point.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AddressUse {
    /// From the signal, or recomputed from the instruction where the signal has none.
    pub fault_address: Option<u64>,
    /// `true`: the signal said 0 and the registers say otherwise.
    pub recomputed: bool,
    /// Not canonical: the upper bits are not a sign extension.
    pub canonical: Option<bool>,
    /// The one high bit that separates the fault address from memory that the process can read.
    pub flipped_bit: Option<u32>,
    /// What lies at the fault address.
    pub fault_mapping: Option<MappingUse>,
    /// The closest mapping when none lies there.
    pub nearest_mapping: Option<MappingUse>,
    /// Bytes from the fault address to `nearest_mapping`.
    pub distance_to_nearest: Option<u64>,
    /// Fault address minus stack pointer.
    pub distance_to_sp: Option<i64>,
    /// What lies at the program counter.
    pub pc_mapping: Option<MappingUse>,
    /// What lies at the stack pointer.
    pub sp_mapping: Option<MappingUse>,
}

/// A mapping, seen from one address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MappingUse {
    /// Empty for anonymous memory.
    pub path: String,
    /// `rw-p`
    pub permissions: String,
    /// First address.
    pub start: u64,
    /// First address after it.
    pub end: u64,
    /// Of the address in the file; for anonymous memory in the mapping.
    pub offset: u64,
    /// The file had no name any more.
    pub deleted: bool,
}
