//! The file under construction: pieces are appended, and each says where it went.

/// Size and offset, as the format writes them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Location {
    pub(super) size: u32,
    pub(super) offset: u32,
}

impl Location {
    pub(super) fn bytes(self) -> [u8; 8] {
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&self.size.to_le_bytes());
        bytes[4..].copy_from_slice(&self.offset.to_le_bytes());
        bytes
    }
}

pub(super) struct Buffer(Vec<u8>);

impl Buffer {
    /// The stream directory follows the header.
    pub(super) const DIRECTORY: u32 = 32;

    /// Leaves room for the header and a directory of this many streams.
    pub(super) fn with_header(streams: usize) -> Self {
        Self(vec![0; Self::DIRECTORY as usize + streams * 12])
    }

    /// Aligned to 8, as readers on strict machines want it.
    pub(super) fn append(&mut self, bytes: &[u8]) -> Location {
        self.0.resize(self.0.len().next_multiple_of(8), 0);
        let offset = u32::try_from(self.0.len());
        let (Ok(offset), Ok(size)) = (offset, u32::try_from(bytes.len())) else {
            return Location::default();
        };
        self.0.extend_from_slice(bytes);
        Location { size, offset }
    }

    /// UTF-16 with its length in bytes before it and a zero behind it.
    pub(super) fn append_string(&mut self, text: &str) -> Location {
        let units: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let mut bytes = (units.len() as u32).to_le_bytes().to_vec();
        bytes.extend(units);
        bytes.extend([0; 2]);
        self.append(&bytes)
    }

    pub(super) fn fill_header(&mut self, header: &[u8]) {
        self.0[..header.len()].copy_from_slice(header);
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}
