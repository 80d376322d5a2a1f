//! Prints what libraries need, as the scanner sees it, with the functions that prove it.

use std::io::Write;
use std::path::PathBuf;

fn main() -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    for path in std::env::args_os().skip(1).map(PathBuf::from) {
        writeln!(out, "{}", path.display())?;
        match lastwords_isa::scan_file(&path) {
            Err(problem) => writeln!(out, "  {}", problem.0)?,
            Ok(report) => {
                for need in &report.needs {
                    let function = need.function.as_deref().unwrap_or("?");
                    writeln!(
                        out,
                        "  {:?} {} in {} functions: {function}",
                        need.because, need.extension, need.functions
                    )?;
                }
                for one in &report.presumes {
                    let given = one.given.join(" ");
                    writeln!(
                        out,
                        "  {} asks for {given}; {} runs {}",
                        one.guard, one.function, one.extension
                    )?;
                }
                writeln!(out, "  dispatched: {}", report.dispatched.join(" "))?;
                writeln!(out, "  gpu: {}", report.gpu.join(" "))?;
            }
        }
    }
    Ok(())
}
