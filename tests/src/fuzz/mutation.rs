//! Mutations of valid bytes like those of a fuzzer, drawn from a seed.

use norn_wire::random::Random;

/// Bytes with a meaning: bounds of numbers, MessagePack's markers of long values, the sentinel of frames.
const BYTES: [u8; 16] = [0, 1, 0x7f, 0x80, 0x90, 0xa0, 0xc0, 0xc6, 0xd9, 0xdb, 0xdc, 0xdd, 0xdf, 0xfd, 0xfe, 0xff];
/// Number of leading bytes in which headers are.
const HEADER_BYTES: usize = 80;
/// Numbers at or beyond some limit.
const NUMBERS: [u64; 8] = [0, 1, u16::MAX as u64, u32::MAX as u64, 1 << 26, (64 << 20) + 1, i64::MAX as u64, u64::MAX];

/// Makes one to four changes. Foreign pieces are taken from `other`.
pub fn mutate(bytes: &[u8], other: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..random.between(1, 4) {
        change(&mut bytes, other, random);
    }
    bytes
}

fn place(length: usize, random: &mut Random) -> usize {
    random.between(0, length as u64) as usize
}

/// Draws a range, usually a short one.
fn piece(bytes: &[u8], random: &mut Random) -> std::ops::Range<usize> {
    let start = place(bytes.len(), random);
    let longest = if random.chance(3, 4) { 64.min(bytes.len() - start) } else { bytes.len() - start };
    start..start + place(longest, random)
}

fn change(bytes: &mut Vec<u8>, other: &[u8], random: &mut Random) {
    if bytes.is_empty() {
        return bytes.extend_from_slice(other);
    }
    // The beginning determines how the rest is read.
    let reach = if random.chance(1, 3) { bytes.len().min(HEADER_BYTES) } else { bytes.len() };
    let at = random.below(reach as u64) as usize;
    match random.below(9) {
        0 => bytes[at] ^= 1 << random.below(8),
        1 => bytes[at] = random.bits() as u8,
        2 => bytes[at] = BYTES[random.below(BYTES.len() as u64) as usize],
        3 => {
            let number = NUMBERS[random.below(NUMBERS.len() as u64) as usize].to_be_bytes();
            let number = &number[8 - [2, 4, 8][random.below(3) as usize]..];
            let end = (at + number.len()).min(bytes.len());
            bytes[at..end].copy_from_slice(&number[..end - at]);
        }
        4 => bytes.truncate(at),
        5 => drop(bytes.drain(piece(bytes, random))),
        6 => {
            let copy = bytes[piece(bytes, random)].to_vec();
            bytes.splice(at..at, copy);
        }
        7 => {
            let foreign = other[piece(other, random)].to_vec();
            bytes.splice(at..at, foreign);
        }
        _ => {
            let range = piece(bytes, random);
            bytes[range].fill(0);
        }
    }
}
