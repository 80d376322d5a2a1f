"""Hardware that says it is failing: machine checks, memory errors, PCI Express, disks, and NVIDIA's Xid."""

from __future__ import annotations

from lastwords.evidence.text.reader import Reader, says

# Xids that NVIDIA's own table puts down to hardware. 13, 31, 43, 45 are the program's, 62 and 109 can be either.
_HARD_XIDS = r"(?:48|63|64|74|79|92|94|95|110|119|120|121|122|123|140|143|149)"

READER = Reader(
    "hardware",
    (
        says("hardware-error", "[hardware error]", unit="machine check"),
        says("hardware-error", "machine check", r"machine check (?:exception|events? logged|error)", unit="CPU or memory"),
        says("hardware-error", "mce:", r"\bmce: .{0,60}(?:bank|error|uncorrected|memory)", unit="CPU or memory"),
        says("hardware-error", "edac", r"\bEDAC .{0,80}\b(?:CE|UE)\b", unit="memory"),
        says("hardware-error", "memory failure", r"Memory failure: 0x[0-9a-f]{1,16}", unit="memory"),
        says("hardware-error", "hardware memory", r"hardware memory (?:error|corruption)", unit="memory"),
        says("hardware-error", "pcie bus error", r"PCIe Bus Error: severity=(?P<severity>[\w ]{1,30})", unit="PCI Express"),
        says("hardware-error", "aer:", r"\bAER: .{0,40}error (?:message )?received", unit="PCI Express"),
        says("hardware-error", "i/o error", r"\bI/O error,? (?:on )?dev(?:ice)? (?P<device>\S{1,20})", unit="disk"),
        says("hardware-error", "medium error", unit="disk"),
        says("hardware-error", "thermal|temperature above", r"(?:core|package) temperature above threshold|thermal shutdown", unit="cooling"),
        says("hardware-error", "nvrm: xid", rf"NVRM: Xid \([^)]{{1,60}}\): (?P<xid>{_HARD_XIDS})\b", unit="GPU"),
        says("hardware-error", "xid", rf"\bXid(?: error)?[ :=]{{1,3}}(?P<xid>{_HARD_XIDS})\b", unit="GPU"),
        says("gpu-fault", "nvrm: xid", r"NVRM: Xid \([^)]{1,60}\): (?P<xid>13|31|43|45)\b"),
        says("hardware-error", "fallen off the bus", unit="GPU"),
        says("hardware-error", "gpu is lost", unit="GPU"),
        says("hardware-error", "ecc error", r"(?:uncorrectable|uncorrected|double.bit) ECC error|ECC error encountered", unit="GPU"),
        says("hardware-error", "ecc", r"(?:uncorrectable|uncorrected|double.bit)[\w -]{0,24}\bECC\b|\bDBE\b.{0,20}ECC", unit="memory"),
        says("hardware-error", "unable to determine the device handle", unit="GPU"),
        says("hardware-error", "no devices were found", unit="GPU"),
        says("hardware-error", "nvlink", r"nvlink.{0,40}(?:fatal|uncorrectable|error was detected)|uncorrectable NVLink", unit="NVLink"),
        says("hardware-error", "hardware stack error", unit="GPU"),
        says("hardware-error", "row remapp", r"row remapp.{0,30}(?:fail|pending)", unit="GPU"),
        says("hardware-error", "hw exception", r"HW Exception by GPU", unit="GPU"),
        says("hardware-error", "ras|poison is", r"\bRAS\b.{0,40}uncorrectable|poison is consumed", unit="GPU"),
        says("hardware-hint", "overclock|expo|xmp", r"overclock|(?-i:\bEXPO\b)|XMP profile"),
    ),
)  # fmt: skip
