//! Copying /proc/self/maps into the box, and noticing on the way which line the stack is in.

/// The mapping that an address lies in, found while the text streams by.
#[derive(Clone, Copy, Default)]
pub(crate) struct Extent {
    pub(crate) low: u64,
    pub(crate) high: u64,
}

/// Reads `START-END` at the head of each line; the rest of a line is skipped.
struct LineHeads {
    wanted: u64,
    low: u64,
    value: u64,
    state: State,
    found: Option<Extent>,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Low,
    High,
    Rest,
}

impl LineHeads {
    fn feed(&mut self, byte: u8) {
        if byte == b'\n' {
            self.state = State::Low;
            self.value = 0;
            return;
        }
        match (self.state, byte) {
            (State::Rest, _) => {}
            (State::Low, b'-') => {
                self.low = self.value;
                self.value = 0;
                self.state = State::High;
            }
            (State::High, b' ') => {
                if self.low <= self.wanted && self.wanted < self.value {
                    self.found = Some(Extent {
                        low: self.low,
                        high: self.value,
                    });
                }
                self.state = State::Rest;
            }
            (_, digit) => self.value = (self.value << 4) | u64::from(hex_value(digit)),
        }
    }
}

pub(crate) fn hex_value(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => 0,
    }
}

/// Copies the maps through `buffer` into `file` at `start`; how much was copied, and the mapping around `address`.
pub(crate) fn copy(
    file: i32,
    start: u64,
    capacity: u64,
    buffer: &mut [u8],
    address: u64,
) -> (u64, Option<Extent>) {
    let mut heads = LineHeads {
        wanted: address,
        low: 0,
        value: 0,
        state: State::Low,
        found: None,
    };
    let mut copied = 0_u64;
    // SAFETY: bounded reads into `buffer`, bounded writes from it; the descriptor is closed again.
    unsafe {
        let maps = libc::open(c"/proc/self/maps".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        if maps < 0 {
            return (0, None);
        }
        while copied < capacity {
            let room = buffer.len().min((capacity - copied) as usize);
            let read = libc::read(maps, buffer.as_mut_ptr().cast(), room);
            if read <= 0 {
                break;
            }
            for byte in buffer.iter().take(read as usize) {
                heads.feed(*byte);
            }
            let at = (start + copied) as libc::off_t;
            let written = libc::pwrite(file, buffer.as_ptr().cast(), read as usize, at);
            if written <= 0 {
                break;
            }
            copied += written as u64;
        }
        libc::close(maps);
    }
    (copied, heads.found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_mapping_around_an_address() {
        let mut heads = LineHeads {
            wanted: 0x7ffd_1000,
            low: 0,
            value: 0,
            state: State::Low,
            found: None,
        };
        let text =
            b"00400000-00401000 r-xp 00000000 08:01 12 /bin/a-b c\n7ffd0000-7ffd2000 rw-p 0 0:0 0 [stack]\n";
        for byte in text {
            heads.feed(*byte);
        }
        let found = heads.found.unwrap();
        assert_eq!((found.low, found.high), (0x7ffd_0000, 0x7ffd_2000));
    }
}
