//! What a scan says of one file, for whoever judges it against a CPU.

use serde::Serialize;

#[derive(Serialize, Clone, Debug, Default, PartialEq)]
pub struct Report {
    pub architecture: &'static str,
    pub build_id: Option<String>,
    /// What runs without a guard, surest first.
    pub needs: Vec<Need>,
    /// What is there, and chosen at run time.
    pub dispatched: Vec<&'static str>,
    /// What runs after something else was asked for.
    pub presumes: Vec<Presumption>,
    /// `sm_90`: machine code for that GPU; `compute_90`: PTX that newer ones compile.
    pub gpu: Vec<String>,
    /// It asks the CPU somewhere, itself or through another library.
    pub asks: bool,
    pub note: Option<&'static str>,
}

#[derive(Serialize, Clone, Debug, PartialEq)]
pub struct Need {
    /// In /proc/cpuinfo's words.
    pub extension: &'static str,
    pub because: Because,
    /// How many functions need it, no guard before them.
    pub functions: u32,
    /// One of them, as the symbol table has it, or its address.
    pub function: Option<String>,
    /// The entry point from which it is reached.
    pub from: Option<String>,
}

#[derive(Serialize, Clone, Debug, PartialEq)]
pub struct Presumption {
    pub extension: &'static str,
    /// What the guard asks for.
    pub given: Vec<&'static str>,
    /// Which needs the extension.
    pub function: String,
    /// Which asks.
    pub guard: String,
}

#[derive(Serialize, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "kebab-case")]
pub enum Because {
    /// All of the file was compiled for it.
    Baseline,
    /// It runs while the file is loaded or imported.
    Load,
    /// Calling the file's interface runs it.
    Call,
    /// The linker noted that the file needs it.
    Note,
    /// `lzcnt` on a CPU without it gives wrong numbers, and no crash.
    Silent,
}

impl Because {
    /// Sure enough to say that the file will crash.
    pub fn is_certain(self) -> bool {
        matches!(self, Self::Baseline | Self::Load)
    }
}
