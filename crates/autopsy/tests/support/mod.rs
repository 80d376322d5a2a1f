//! Victims compiled at test time, their real core files, and gdb as the yardstick.
//!
//! Each test binary uses another part of this, so the rest looks unused to it.
#![allow(dead_code)]
// A skipped test says why: that is what its output is for.
#![allow(clippy::print_stderr)]

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use lastwords_autopsy::Region;
use tempfile::TempDir;

/// Says why a test did nothing. Never silently.
pub(crate) fn skip(reason: &str) {
    eprintln!("skipped: {reason}");
}

pub(crate) fn has(tool: &str) -> bool {
    let mut check = Command::new(tool);
    check.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    check.status().is_ok_and(|status| status.success())
}

/// What stops this host from making core files in a folder of ours, if anything.
pub(crate) fn obstacle() -> Option<String> {
    if !has("gcc") || !has("g++") {
        return Some("no gcc or g++ here".to_owned());
    }
    let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
    if pattern.starts_with('|') || pattern.contains('/') {
        return Some(format!("core_pattern is {:?}", pattern.trim()));
    }
    None
}

pub(crate) struct Victim {
    pub(crate) folder: TempDir,
    pub(crate) program: PathBuf,
}

impl Victim {
    pub(crate) fn compile(source: &str, flags: &[&str]) -> Self {
        let compiler = if source.ends_with(".cpp") { "g++" } else { "gcc" };
        Self::compile_with(compiler, source, flags)
    }

    pub(crate) fn compile_with(compiler: &str, source: &str, flags: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("victim");
        let source = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/victims")
            .join(source);
        let mut command = Command::new(compiler);
        command
            .args(["-O2", "-fomit-frame-pointer", "-w", "-pthread"])
            .args(flags);
        assert!(
            command
                .arg("-o")
                .arg(&program)
                .arg(source)
                .status()
                .unwrap()
                .success()
        );
        Self { folder, program }
    }

    pub(crate) fn strip(&self) {
        assert!(
            Command::new("strip")
                .arg(&self.program)
                .status()
                .unwrap()
                .success()
        );
    }

    /// What packers leave: program headers only.
    pub(crate) fn forget_sections(&self) {
        let mut bytes = std::fs::read(&self.program).unwrap();
        bytes[40..48].fill(0);
        bytes[58..64].fill(0);
        std::fs::write(&self.program, bytes).unwrap();
    }

    /// As Fedora builds its packages: stripped, with a compressed symbol table inside.
    pub(crate) fn embed_mini_debug_info(&self) {
        let script = "set -e
            objcopy --only-keep-debug victim symbols && xz symbols
            strip victim && objcopy --add-section .gnu_debugdata=symbols.xz victim";
        let status = Command::new("sh")
            .args(["-c", script])
            .current_dir(self.folder.path())
            .status();
        assert!(status.unwrap().success());
    }

    /// Lets it die and gives the core file, or why there is none.
    pub(crate) fn die(&self, how: &[&str]) -> Result<PathBuf, String> {
        let folder = self.folder.path().join(how.join("-") + "-death");
        std::fs::create_dir_all(&folder).unwrap();
        let mut command = Command::new(&self.program);
        command.args(how).current_dir(&folder).stderr(Stdio::null());
        // SAFETY: setrlimit is async-signal-safe, and nothing else runs between fork and exec.
        unsafe { command.pre_exec(allow_core_files) };
        let status = command.status().unwrap();
        let core = std::fs::read_dir(&folder)
            .unwrap()
            .flatten()
            .map(|entry| entry.path())
            .next();
        core.ok_or_else(|| format!("no core file after {status}"))
    }
}

fn allow_core_files() -> std::io::Result<()> {
    let limit = libc::rlimit {
        rlim_cur: libc::RLIM_INFINITY,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: the pointer is to a live, initialised structure.
    match unsafe { libc::setrlimit(libc::RLIMIT_CORE, &limit) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// One frame by gdb's own account.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct GdbFrame {
    pub(crate) kind: String,
    pub(crate) pc: u64,
    pub(crate) name: Option<String>,
}

const GDB_SCRIPT: &str = r#"
set backtrace past-main on
python
kinds = {gdb.NORMAL_FRAME: "normal", gdb.INLINE_FRAME: "inline", gdb.SIGTRAMP_FRAME: "signal"}
frame, count = gdb.newest_frame(), 0
while frame is not None and count < 300:
    print("FRAME", kinds.get(frame.type(), "other"), frame.pc(), frame.name() or "?")
    frame, count = frame.older(), count + 1
end
"#;

/// gdb's frames of the thread that crashed. Its "other" frames (tail calls) exist only in debug
/// information: nothing of them is on the stack, so they are left out.
pub(crate) fn gdb_frames(program: &Path, core: &Path) -> Vec<GdbFrame> {
    let script = core.with_file_name("script.gdb");
    std::fs::write(&script, GDB_SCRIPT).unwrap();
    let output = Command::new("gdb")
        .args(["-nx", "-batch", "-x"])
        .arg(&script)
        .arg(program)
        .arg(core)
        .env("DEBUGINFOD_URLS", "")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let frames = text.lines().filter_map(|line| {
        let mut words = line.strip_prefix("FRAME ")?.splitn(3, ' ');
        let (kind, pc, name) = (words.next()?, words.next()?.parse().ok()?, words.next()?);
        let name = Some(name.to_owned()).filter(|name| name != "?");
        (kind != "other").then(|| GdbFrame {
            kind: kind.to_owned(),
            pc,
            name,
        })
    });
    frames.collect()
}

/// The segment of a core file that holds the stack pointer, or the next one above: after a stack
/// overflow the pointer can lie below its stack.
pub(crate) fn stack_of(bytes: &[u8], sp: u64) -> Region<'_> {
    let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let (table, count) = (
        u64_at(32) as usize,
        usize::from(bytes[56]) + usize::from(bytes[57]) * 256,
    );
    (0..count)
        .map(|index| table + index * 56)
        .map(|at| (u64_at(at + 16), u64_at(at + 8) as usize, u64_at(at + 32) as usize))
        .filter(|(address, _, size)| sp < *address + *size as u64)
        .min_by_key(|(address, _, _)| *address)
        .map(|(address, offset, size)| Region {
            address,
            bytes: &bytes[offset..offset + size],
        })
        .unwrap()
}
