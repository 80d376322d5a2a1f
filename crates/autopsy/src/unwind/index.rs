//! The sorted index of .eh_frame, .eh_frame_hdr: which entry covers an address.
//!
//! By hand, because gimli's own search computes with the header's numbers unchecked and a damaged
//! library makes it panic in debug builds. Every linker writes the one layout that is read here;
//! anything else counts as no index, and the entries are searched one by one.

/// Version 1; the start of .eh_frame relative to here in 4 bytes; a count in 4 bytes; a table of
/// pairs of 4 bytes each, relative to the header.
const USUAL_LAYOUT: [u8; 4] = [1, 0x1b, 0x03, 0x3b];
const TABLE: usize = 12;
const ROW: usize = 8;

pub(super) struct Index<'data> {
    address: u64,
    rows: &'data [u8],
}

impl<'data> Index<'data> {
    pub(super) fn parse(header: &'data [u8], address: u64) -> Option<Self> {
        if header.get(..4)? != USUAL_LAYOUT {
            return None;
        }
        let count = u32::from_le_bytes(header.get(8..TABLE)?.try_into().ok()?) as usize;
        let rows = header.get(TABLE..)?;
        let length = count.checked_mul(ROW)?.min(rows.len());
        (count > 0).then(|| Self {
            address,
            rows: &rows[..length],
        })
    }

    /// Address of the entry whose function starts at or before this one, and closest to it.
    pub(super) fn entry_for(&self, address: u64) -> Option<u64> {
        let (mut low, mut high) = (0, self.rows.len() / ROW);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.field(middle * ROW)? <= address {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        self.field(low.checked_sub(1)? * ROW + 4)
    }

    fn field(&self, at: usize) -> Option<u64> {
        let relative = i32::from_le_bytes(self.rows.get(at..at + 4)?.try_into().ok()?);
        Some(self.address.wrapping_add_signed(i64::from(relative)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(rows: &[(i32, i32)], count: u32) -> Vec<u8> {
        let mut bytes = USUAL_LAYOUT.to_vec();
        bytes.extend([0; 4]);
        bytes.extend(count.to_le_bytes());
        for (start, entry) in rows {
            bytes.extend(start.to_le_bytes());
            bytes.extend(entry.to_le_bytes());
        }
        bytes
    }

    #[test]
    fn finds_the_closest_function_before_an_address() {
        let bytes = header(&[(-0x100, 1), (-0x50, 2), (0x10, 3)], 3);
        let index = Index::parse(&bytes, 0x1000).unwrap();
        assert_eq!(index.entry_for(0xeff), None);
        assert_eq!(index.entry_for(0xf00), Some(0x1001));
        assert_eq!(index.entry_for(0xfff), Some(0x1002));
        assert_eq!(index.entry_for(u64::MAX), Some(0x1003));
    }

    #[test]
    fn a_count_that_lies_is_cut_to_what_is_there() {
        let bytes = header(&[(0, 1)], u32::MAX);
        assert_eq!(
            Index::parse(&bytes, 0x1000).unwrap().entry_for(0x1000),
            Some(0x1001)
        );
        assert!(Index::parse(&header(&[], 0), 0).is_none());
        assert!(Index::parse(&[1, 2, 3, 4, 5], 0).is_none());
    }
}
