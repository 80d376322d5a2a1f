//! The steps of a record, in the order of their worth: what comes first is there even if the rest fails.
//!
//! Memory of the dying process is never read by our own loads. It is handed to pwrite(2) as the buffer to
//! write from: where it cannot be read the kernel says EFAULT, and no second fault happens.

use crate::exception;
use crate::guard::{self, Step};
use crate::maps::{self, Extent};
use crate::registers;
use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::mem::offset_of;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use lastwords_blackbox::clock;
use lastwords_blackbox::layout::{
    CODE_BEFORE, CODE_BYTES, CRASH_AT, Crash, MAPS_AT, MAPS_CAPACITY, POINTED_BYTES, PYTHON_AT,
    PYTHON_CAPACITY, Pointed, REGISTER_MEMORY_AT, RegisterMemory, STACK_AT, STACK_BASE_CAPACITY,
    STACK_CAPACITY, STEP_ABORT_MESSAGE, STEP_CODE, STEP_EXCEPTION, STEP_MAPS, STEP_PYTHON,
    STEP_REGISTERS_POINT_AT, STEP_SIGNAL, STEP_STACK, STEP_THREADS, THREADS_AT, Threads,
};
use lastwords_blackbox::recorder;

/// CPython's own traceback writer, `faulthandler_user`: made to run in signal handlers.
static PYTHON_DUMPER: AtomicUsize = AtomicUsize::new(0);
static PYTHON_SIGNAL: AtomicUsize = AtomicUsize::new(0);

/// `_Py_DumpTracebackThreads(fd, NULL, thread state)` and `PyGILState_GetThisThreadState()`, where this Python
/// exports them; zero where not.
static DUMP_THREADS: AtomicUsize = AtomicUsize::new(0);
static THIS_THREAD_STATE: AtomicUsize = AtomicUsize::new(0);

/// Looks for the function behind faulthandler's. It is private and not in every version, so it only comes second:
/// before a "Fatal Python error" aborts, CPython takes faulthandler apart, and only this one still works.
pub fn find_second_dumper() {
    if DUMP_THREADS.load(Ordering::Relaxed) != 0 {
        return;
    }
    // SAFETY: constant names.
    unsafe {
        let find = |name: &core::ffi::CStr| libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) as usize;
        let state = find(c"PyGILState_GetThisThreadState");
        THIS_THREAD_STATE.store(state, Ordering::Relaxed);
        if state != 0 {
            DUMP_THREADS.store(find(c"_Py_DumpTracebackThreads"), Ordering::Release);
        }
    }
}

/// Tells the handler how to have CPython write all Python frames to the box's text descriptor: call
/// `dumper(signal)`.
///
/// # Safety
/// `dumper` is an async-signal-safe `extern "C" fn(c_int)`.
pub unsafe fn set_python_dumper(dumper: usize, signal: i32) {
    PYTHON_SIGNAL.store(signal as usize, Ordering::Relaxed);
    PYTHON_DUMPER.store(dumper, Ordering::Release);
}

const BUFFER: usize = 16 << 10;
struct OwnersBuffer(UnsafeCell<[u8; BUFFER]>);
// SAFETY: used by the thread that owns the crash alone.
unsafe impl Sync for OwnersBuffer {}
/// Static, because alternate stacks that others installed can be small.
static SCRATCH: OwnersBuffer = OwnersBuffer(UnsafeCell::new([0; BUFFER]));

/// The step under way, for the record of a fault inside it.
pub(crate) static CURRENT_STEP: AtomicU32 = AtomicU32::new(0);

/// What every step gets.
struct Scene {
    crash: *mut Crash,
    info: *mut libc::siginfo_t,
    context: *mut c_void,
    signal: i32,
    box_fd: i32,
}

const STEPS: [(u32, Step); 9] = [
    (STEP_SIGNAL, signal_step),
    (STEP_CODE, code_step),
    (STEP_STACK, stack_step),
    (STEP_MAPS, maps_step),
    (STEP_REGISTERS_POINT_AT, pointed_step),
    (STEP_ABORT_MESSAGE, abort_message_step),
    (STEP_EXCEPTION, exception_step),
    (STEP_PYTHON, python_step),
    (STEP_THREADS, threads_step),
];

/// Takes every step. The caller owns the crash.
///
/// # Safety
/// Called from a signal handler with that handler's own arguments; `crash` points into the mapped box.
pub(crate) unsafe fn all(crash: *mut Crash, signal: i32, info: *mut libc::siginfo_t, context: *mut c_void) {
    let mut scene = Scene {
        crash,
        info,
        context,
        signal,
        box_fd: recorder::box_fd().unwrap_or(-1),
    };
    let argument: *mut c_void = (&raw mut scene).cast();
    for (number, step) in STEPS {
        // SAFETY: the guard keeps faults inside `step`; the crash part is ours while we own it.
        unsafe {
            CURRENT_STEP.store(number, Ordering::Relaxed);
            let bit = 1_u32 << number;
            let is_done = guard::CRASH.call(step, argument)
                || (number == STEP_PYTHON
                    && DUMP_THREADS.load(Ordering::Acquire) != 0
                    && guard::CRASH.call(python_again_step, argument));
            if is_done {
                (*crash).steps_done |= bit;
            } else {
                (*crash).steps_failed |= bit;
            }
        }
    }
}

/// # Safety
/// `argument` is the scene that `all` made.
unsafe fn scene<'a>(argument: *mut c_void) -> (&'a Scene, &'a mut Crash) {
    // SAFETY: by contract; the crash part is mapped for the life of the process.
    unsafe {
        let scene = &*argument.cast::<Scene>();
        (scene, &mut *scene.crash)
    }
}

unsafe extern "C" fn signal_step(argument: *mut c_void) {
    // SAFETY: the kernel's siginfo and context of this signal.
    unsafe {
        let (scene, crash) = scene(argument);
        crash.time_ns = clock::monotonic_ns();
        crash.time_unix_ns = clock::unix_ns();
        let info = &*scene.info;
        crash.signal = scene.signal;
        crash.code = info.si_code;
        crash.error = info.si_errno;
        if info.si_code <= 0 {
            crash.sender_pid = info.si_pid();
            crash.sender_uid = info.si_uid();
        } else {
            crash.address = info.si_addr() as u64;
        }
        if scene.signal == libc::SIGSYS {
            // struct { void *call_addr; int syscall; ... } stands where si_addr does.
            let after_header = scene.info.cast::<u8>().wrapping_add(16);
            crash.syscall = after_header.wrapping_add(8).cast::<i32>().read_unaligned();
        }
        crash.tid = libc::syscall(libc::SYS_gettid) as i32;
        libc::prctl(libc::PR_GET_NAME, crash.thread_name.as_mut_ptr());
        registers::save(scene.context, crash);
        let mut stack: libc::stack_t = core::mem::zeroed();
        libc::sigaltstack(core::ptr::null(), &mut stack);
        crash.on_alternate_stack = u32::from(stack.ss_flags & libc::SS_ONSTACK != 0);
    }
}

/// Writes `length` bytes of this process's memory at `address` into the box; how many could be read.
pub(crate) fn copy_memory(box_fd: i32, address: u64, length: u64, at: u64) -> u64 {
    // SAFETY: pwrite checks the memory itself and answers EFAULT.
    let written = unsafe {
        libc::pwrite(
            box_fd,
            address as usize as *const c_void,
            length as usize,
            at as libc::off_t,
        )
    };
    written.max(0) as u64
}

unsafe extern "C" fn code_step(argument: *mut c_void) {
    // SAFETY: see `scene`.
    let (scene, crash) = unsafe { scene(argument) };
    let pc = registers::pc(crash);
    let at = CRASH_AT + offset_of!(Crash, code_bytes) as u64;
    let before = copy_memory(scene.box_fd, pc.wrapping_sub(CODE_BEFORE), CODE_BEFORE, at);
    // An instruction at the head of a mapping has nothing readable before it.
    let skipped = if before == CODE_BEFORE { CODE_BEFORE } else { 0 };
    let after = copy_memory(scene.box_fd, pc, CODE_BYTES as u64 - skipped, at + skipped);
    crash.code_address = pc.wrapping_sub(skipped);
    crash.code_length = if after == 0 { 0 } else { (skipped + after) as u32 };
}

const PAGE: u64 = 4096;
/// How far above the stack pointer the first readable page is looked for: on an overflow the stack
/// pointer lies in the guard, or beyond it by one large frame.
const PAGES_TO_TRY: u64 = 1024;

unsafe extern "C" fn stack_step(argument: *mut c_void) {
    // SAFETY: see `scene`.
    let (scene, crash) = unsafe { scene(argument) };
    let mut from = registers::sp(crash).wrapping_sub(registers::RED_ZONE) & !15;
    for _ in 0..PAGES_TO_TRY {
        let copied = copy_stack(scene.box_fd, from);
        if copied > 0 {
            crash.stack_address = from;
            crash.stack_length = copied;
            return;
        }
        from = next_page(from);
    }
}

fn next_page(address: u64) -> u64 {
    (address & !(PAGE - 1)).wrapping_add(PAGE)
}

/// From `from` up to what cannot be read. Linux writes what comes before a bad page; where a system refuses
/// the whole call instead (qemu-user does), the pages are taken one by one.
fn copy_stack(box_fd: i32, from: u64) -> u64 {
    let capacity = STACK_CAPACITY - STACK_BASE_CAPACITY;
    let at_once = copy_memory(box_fd, from, capacity, STACK_AT);
    if at_once > 0 {
        return at_once;
    }
    let mut copied = 0;
    while copied < capacity {
        let page = from.wrapping_add(copied);
        let length = next_page(page).wrapping_sub(page).min(capacity - copied);
        let got = copy_memory(box_fd, page, length, STACK_AT + copied);
        copied += got;
        if got < length {
            break;
        }
    }
    copied
}

unsafe extern "C" fn maps_step(argument: *mut c_void) {
    // SAFETY: see `scene`; the scratch buffer belongs to the owner of the crash.
    let (scene, crash, buffer) = unsafe {
        let (scene, crash) = scene(argument);
        (scene, crash, &mut *SCRATCH.0.get())
    };
    let stack = if crash.stack_length > 0 {
        crash.stack_address
    } else {
        registers::sp(crash)
    };
    let (length, extent) = maps::copy(scene.box_fd, MAPS_AT, MAPS_CAPACITY, buffer, stack);
    crash.maps_length = length;
    if let Some(Extent { low, high }) = extent {
        crash.stack_low = low;
        crash.stack_high = high;
        stack_base(scene, crash);
    }
}

/// A deep recursion fills the record with its own frames. The other end of the stack says who began it.
fn stack_base(scene: &Scene, crash: &mut Crash) {
    let kept_until = crash.stack_address.wrapping_add(crash.stack_length);
    if kept_until >= crash.stack_high {
        // The mappings above the stack were copied along with it: they are not stack.
        crash.stack_length = crash.stack_high.saturating_sub(crash.stack_address);
        return;
    }
    let from = kept_until.max(crash.stack_high.saturating_sub(STACK_BASE_CAPACITY)) & !15;
    let at = STACK_AT + STACK_CAPACITY - STACK_BASE_CAPACITY;
    crash.stack_base_address = from;
    crash.stack_base_length = copy_memory(
        scene.box_fd,
        from,
        (crash.stack_high - from).min(STACK_BASE_CAPACITY),
        at,
    );
}

unsafe extern "C" fn pointed_step(argument: *mut c_void) {
    // SAFETY: see `scene`.
    let (scene, crash) = unsafe { scene(argument) };
    let memory: *mut RegisterMemory = recorder::section(REGISTER_MEMORY_AT);
    let count = crash.register_count as usize;
    for (number, value) in crash.registers.iter().take(count).enumerate() {
        let entry = number * size_of::<Pointed>();
        let at = REGISTER_MEMORY_AT + (entry + offset_of!(Pointed, bytes)) as u64;
        let copied = copy_memory(scene.box_fd, *value, POINTED_BYTES as u64, at);
        // SAFETY: mapped; `get_mut` bounds the place.
        if let Some(pointed) = unsafe { (*memory).pointed.get_mut(number) } {
            pointed.length = copied as u32;
        }
    }
}

/// glibc's last words before abort(): "double free or corruption", "assertion failed", and so on.
unsafe extern "C" fn abort_message_step(argument: *mut c_void) {
    // SAFETY: see `scene`; glibc's struct is { unsigned size; char text[]; } and read under the guard.
    unsafe {
        let (scene, crash) = scene(argument);
        let holder = crate::signals::abort_message_place();
        if scene.signal != libc::SIGABRT || holder.is_null() || (*holder).is_null() {
            return;
        }
        let text = (*holder).wrapping_add(4);
        let length = libc::strnlen(text.cast(), 2000);
        crash.abort_message.set(core::slice::from_raw_parts(text, length));
    }
}

unsafe extern "C" fn exception_step(argument: *mut c_void) {
    // SAFETY: see `scene`.
    unsafe {
        let (scene, crash) = scene(argument);
        if scene.signal == libc::SIGABRT {
            exception::describe(crash);
        }
    }
}

unsafe extern "C" fn python_step(argument: *mut c_void) {
    // SAFETY: see `scene` and `dump_python`.
    unsafe {
        let (_, crash) = scene(argument);
        let Some(text_fd) = recorder::text_fd() else {
            return;
        };
        libc::lseek(text_fd, PYTHON_AT as libc::off_t, libc::SEEK_SET);
        dump_python();
        let end = libc::lseek(text_fd, 0, libc::SEEK_CUR) as u64;
        crash.python_length = end.saturating_sub(PYTHON_AT).min(PYTHON_CAPACITY);
    }
}

/// The same by the function behind faulthandler's, where it was found.
unsafe extern "C" fn python_again_step(argument: *mut c_void) {
    // SAFETY: see `scene`; CPython's own functions, called as faulthandler calls them.
    unsafe {
        let (_, crash) = scene(argument);
        let Some(text_fd) = recorder::text_fd() else {
            return;
        };
        libc::lseek(text_fd, PYTHON_AT as libc::off_t, libc::SEEK_SET);
        type Dump = extern "C" fn(i32, *mut c_void, *mut c_void) -> *const u8;
        type State = extern "C" fn() -> *mut c_void;
        let state = core::mem::transmute::<usize, State>(THIS_THREAD_STATE.load(Ordering::Relaxed))();
        let dump = core::mem::transmute::<usize, Dump>(DUMP_THREADS.load(Ordering::Acquire));
        dump(text_fd, core::ptr::null_mut(), state);
        let end = libc::lseek(text_fd, 0, libc::SEEK_CUR) as u64;
        crash.python_length = end.saturating_sub(PYTHON_AT).min(PYTHON_CAPACITY);
    }
}

/// Has CPython write all threads' frames to the text descriptor, if it told us how.
///
/// # Safety
/// Under a guard: the frames may be broken.
pub(crate) unsafe fn dump_python() {
    let dumper = PYTHON_DUMPER.load(Ordering::Acquire);
    if dumper != 0 {
        // SAFETY: CPython's own signal-safe function, see `set_python_dumper`.
        let dump = unsafe { core::mem::transmute::<usize, extern "C" fn(i32)>(dumper) };
        dump(PYTHON_SIGNAL.load(Ordering::Relaxed) as i32);
    }
}

/// getdents64's record: inode, offset, record length, type, name.
const NAME_AT: usize = 19;
const RECORD_LENGTH_AT: usize = 16;

unsafe extern "C" fn threads_step(argument: *mut c_void) {
    // SAFETY: see `scene`; the scratch buffer belongs to the owner of the crash.
    let (crash, buffer) = unsafe {
        let (_, crash) = scene(argument);
        (crash, &mut *SCRATCH.0.get())
    };
    each_thread(buffer, |tid| add_thread(crash, tid));
}

/// Calls `visit` with the id of every thread of this process.
pub(crate) fn each_thread(buffer: &mut [u8], mut visit: impl FnMut(i32)) {
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
    // SAFETY: bounded by the buffer's length; the descriptor is closed again.
    unsafe {
        let directory = libc::open(c"/proc/self/task".as_ptr(), flags);
        if directory < 0 {
            return;
        }
        loop {
            let read = libc::syscall(libc::SYS_getdents64, directory, buffer.as_mut_ptr(), buffer.len());
            if read <= 0 {
                break;
            }
            each_entry(buffer, read as usize, |name| {
                if !name.is_empty() && name.iter().all(u8::is_ascii_digit) {
                    visit(name.iter().fold(0, |value: i32, digit| {
                        value.wrapping_mul(10).wrapping_add(i32::from(digit - b'0'))
                    }));
                }
            });
        }
        libc::close(directory);
    }
}

fn each_entry(buffer: &[u8], length: usize, mut visit: impl FnMut(&[u8])) {
    let mut at = 0;
    while at < length {
        let Some(record) = buffer.get(at..length) else {
            return;
        };
        let (Some(&low), Some(&high)) = (record.get(RECORD_LENGTH_AT), record.get(RECORD_LENGTH_AT + 1))
        else {
            return;
        };
        let record_length = usize::from(u16::from_le_bytes([low, high]));
        if record_length < NAME_AT {
            return;
        }
        let name = record.get(NAME_AT..).unwrap_or(&[]);
        visit(name.split(|byte| *byte == 0).next().unwrap_or(&[]));
        at += record_length;
    }
}

fn add_thread(crash: &mut Crash, tid: i32) {
    let threads: *mut Threads = recorder::section(THREADS_AT);
    let mut path = recorder::PathBuffer::new();
    path.push(b"/proc/self/task/");
    path.push_number(tid as u64);
    path.push(b"/comm");
    // SAFETY: mapped; `get_mut` bounds the place.
    if let Some(entry) = unsafe { (*threads).ring.get_mut(crash.thread_count as usize) } {
        entry.tid = tid;
        entry.name = [0; 16];
        let read = lastwords_blackbox::identity::read_small(path.as_c_str(), &mut entry.name);
        if let Some(newline) = read.checked_sub(1).and_then(|last| entry.name.get_mut(last)) {
            *newline = 0;
        }
        crash.thread_count += 1;
    }
}
