//! What crashes leave, what each kind of trouble does, and what each kind of damage does.

use super::*;
use std::collections::BTreeSet;

fn written() -> SimDisk {
    let mut disk = SimDisk::default();
    disk.write("a", 0, b"durable").unwrap();
    disk.sync("a").unwrap();
    disk.sync_directory().unwrap();
    disk
}

#[test]
fn a_crash_keeps_what_was_synced_and_any_of_the_rest() {
    let mut states = BTreeMap::new();
    for seed in 0..2_000 {
        let mut disk = written();
        disk.write("a", 7, b"12").unwrap();
        disk.write("a", 9, b"34").unwrap();
        disk.crash(&mut Random::new(seed));
        let bytes = disk.read("a", 0, 100).unwrap();
        assert!(bytes.starts_with(b"durable"));
        let from_write = |(place, byte): (usize, &u8)| *byte == 0 || *byte == b"durable1234"[place];
        assert!(bytes.iter().enumerate().all(from_write), "{bytes:?}");
        // What survived one crash survives the next.
        disk.crash(&mut Random::new(seed + 1));
        assert_eq!(disk.read("a", 0, 100).unwrap(), bytes);
        *states.entry(bytes).or_insert(0) += 1;
    }
    for state in ["durable", "durable1", "durable12", "durable__3", "durable__34", "durable_2_4"] {
        let state: Vec<u8> = state.bytes().map(|byte| if byte == b'_' { 0 } else { byte }).collect();
        assert!(states.contains_key(&state), "no {state:?} in {states:?}");
    }
}

#[test]
fn a_file_whose_name_was_not_synced_may_vanish() {
    let mut vanished = 0;
    for seed in 0..100 {
        let mut disk = written();
        disk.write("b", 0, b"data").unwrap();
        disk.sync("b").unwrap();
        disk.crash(&mut Random::new(seed));
        match disk.read("b", 0, 10) {
            Ok(bytes) => assert_eq!(bytes, b"data"),
            Err(_) => vanished += 1,
        }
        assert_eq!(disk.read("a", 0, 10).unwrap(), b"durable");
    }
    assert!((20..80).contains(&vanished), "{vanished}");
}

#[test]
fn renames_and_removals_last_once_the_directory_is_synced() {
    let mut disk = written();
    disk.rename("a", "b").unwrap();
    disk.write("c", 0, b"x").unwrap();
    disk.remove("c").unwrap();
    disk.sync_directory().unwrap();
    disk.crash(&mut Random::new(1));
    assert_eq!(disk.list().unwrap(), ["b"]);
    assert_eq!(disk.read("b", 3, 2).unwrap(), b"ab");
    assert!(disk.read("a", 0, 1).is_err());
}

#[test]
fn a_cut_that_was_not_synced_may_be_undone() {
    for seed in 0..100 {
        let mut disk = written();
        disk.truncate("a", 3).unwrap();
        disk.write("a", 3, b"XY").unwrap();
        disk.crash(&mut Random::new(seed));
        let bytes = disk.read("a", 0, 100).unwrap();
        let mut written = bytes.iter().zip(b"durXYle").zip(b"durable");
        let possible = written.all(|((byte, new), old)| byte == new || byte == old || *byte == 0);
        assert!(possible && bytes.starts_with(b"dur") && [3, 4, 5, 7].contains(&bytes.len()), "{bytes:?}");
    }
}

/// A disk with these troubles.
fn troubled(troubles: Troubles, seed: u64) -> SimDisk {
    let disk = written();
    disk.trouble(troubles, Random::new(seed));
    disk
}

fn read(disk: &SimDisk, file: &str) -> Vec<u8> {
    disk.read(file, 0, 10_000).unwrap()
}

const ALWAYS: u64 = 1_000_000;

#[test]
fn without_troubles_nothing_is_drawn() {
    let disk = written();
    let mut troubled = troubled(Troubles::default(), 1);
    troubled.write("b", 0, b"data").unwrap();
    troubled.sync("b").unwrap();
    troubled.sync_directory().unwrap();
    assert_eq!((disk.suffered(), troubled.suffered()), (Suffered::default(), Suffered::default()));
    let random = |disk: &SimDisk| disk.0.borrow_mut().random().bits();
    assert_eq!(random(&troubled), Random::new(1).bits());
}

#[test]
fn a_failed_read_leaves_all_as_it_is() {
    let disk = troubled(Troubles { read_errors_ppm: ALWAYS / 2, ..Troubles::default() }, 1);
    let failed = (0..1_000).filter(|_| disk.read("a", 0, 100).is_err()).count();
    assert!((400..600).contains(&failed), "{failed}");
    assert_eq!(disk.suffered(), Suffered { reads: failed as u64, ..Suffered::default() });
    disk.end_troubles();
    assert_eq!(read(&disk, "a"), b"durable");
}

#[test]
fn a_failed_write_may_have_happened_in_part() {
    let mut left = BTreeMap::new();
    for seed in 0..500 {
        let mut disk = troubled(Troubles { write_errors_ppm: ALWAYS, ..Troubles::default() }, seed);
        let error = disk.write("a", 7, b"1234").unwrap_err();
        assert!(!error.full && error.operation == "write" && error.file == "a");
        *left.entry(read(&disk, "a")).or_insert(0) += 1;
    }
    let expected: Vec<Vec<u8>> = (7..=11).map(|end| b"durable1234"[..end].to_vec()).collect();
    assert_eq!(left.into_keys().collect::<Vec<_>>(), expected);
}

#[test]
fn a_failed_cut_may_have_happened() {
    let cut = |seed| {
        let mut disk = troubled(Troubles { write_errors_ppm: ALWAYS, ..Troubles::default() }, seed);
        disk.truncate("a", 2).unwrap_err();
        read(&disk, "a").len()
    };
    let lengths: BTreeSet<usize> = (0..50).map(cut).collect();
    assert_eq!(lengths.into_iter().collect::<Vec<_>>(), [2, 7]);
}

/// The next sync succeeds, and the lost changes are read until a crash shows that they are gone.
#[test]
fn a_failed_sync_loses_what_it_was_to_make_durable() {
    let mut left = BTreeMap::new();
    for seed in 0..200 {
        let mut disk = troubled(Troubles { sync_errors_ppm: ALWAYS, ..Troubles::default() }, seed);
        disk.write("a", 7, b"12").unwrap();
        disk.write("a", 0, b"D").unwrap();
        disk.sync("a").unwrap_err();
        disk.end_troubles();
        disk.sync("a").unwrap();
        disk.write("a", 9, b"3").unwrap();
        disk.sync("a").unwrap();
        assert_eq!(read(&disk, "a"), b"Durable123");
        disk.crash(&mut Random::new(seed));
        *left.entry(read(&disk, "a")).or_insert(0) += 1;
    }
    let expected = ["Durable\0\x003", "Durable123", "durable\0\x003", "durable123"];
    assert_eq!(left.into_keys().collect::<Vec<_>>(), expected.map(|text| text.as_bytes().to_vec()));
}

#[test]
fn a_lying_sync_makes_nothing_durable_until_an_honest_one() {
    let mut lost = 0;
    for seed in 0..100 {
        let lying = Troubles { sync_lies_ppm: ALWAYS, ..Troubles::default() };
        let mut disk = troubled(lying, seed);
        disk.write("a", 7, b"12").unwrap();
        disk.write("b", 0, b"new").unwrap();
        disk.sync("a").unwrap();
        disk.sync_directory().unwrap();
        assert_eq!(disk.suffered(), Suffered { lies: 2, ..Suffered::default() });
        if seed % 2 == 0 {
            disk.end_troubles();
            disk.sync("a").unwrap();
            disk.sync("b").unwrap();
            disk.sync_directory().unwrap();
        }
        disk.crash(&mut Random::new(seed));
        disk.end_troubles();
        let whole = read(&disk, "a") == b"durable12" && disk.read("b", 0, 3).is_ok_and(|bytes| bytes == b"new");
        assert!(whole || seed % 2 == 1, "an honest sync makes all of it durable");
        lost += u64::from(!whole);
    }
    assert!(lost > 10, "{lost}");
}

#[test]
fn operations_on_the_directory_fail() {
    let mut kept = BTreeMap::new();
    for seed in 0..100 {
        let mut disk = written();
        disk.write("b", 0, b"x").unwrap();
        disk.sync("b").unwrap();
        disk.write("c", 0, b"x").unwrap();
        disk.sync("c").unwrap();
        disk.trouble(Troubles { name_errors_ppm: ALWAYS, ..Troubles::default() }, Random::new(seed));
        disk.list().unwrap_err();
        disk.rename("a", "d").unwrap_err();
        disk.remove("a").unwrap_err();
        disk.sync_directory().unwrap_err();
        assert_eq!(disk.suffered(), Suffered { names: 4, ..Suffered::default() });
        disk.end_troubles();
        disk.sync_directory().unwrap();
        assert_eq!(disk.list().unwrap(), ["a", "b", "c"]);
        disk.crash(&mut Random::new(seed));
        *kept.entry(disk.list().unwrap().len()).or_insert(0) += 1;
    }
    assert_eq!(
        kept.into_keys().collect::<Vec<_>>(),
        [1, 2, 3],
        "a prefix of the changes, whatever the later sync said"
    );
}

#[test]
fn a_full_disk_takes_a_part_and_more_once_something_is_freed() {
    let mut parts = BTreeSet::new();
    for seed in 0..200 {
        let full = Troubles { capacity_bytes: Some(10), ..Troubles::default() };
        let mut disk = troubled(full.clone(), seed);
        disk.write("a", 0, b"DURABLE").unwrap();
        disk.write("b", 0, b"x").unwrap();
        assert_eq!(disk.used_bytes(), 8);
        let error = disk.write("a", 5, b"123456789").unwrap_err();
        assert!(error.full);
        parts.insert(read(&disk, "a").len());
        assert!(disk.used_bytes() <= 10);
        assert_eq!(disk.suffered(), Suffered { full: 1, ..Suffered::default() });
        disk.remove("a").unwrap();
        disk.write("b", 0, b"123456789").unwrap();
        disk.trouble(Troubles { capacity_bytes: Some(20), ..full }, Random::new(seed));
        disk.write("b", 9, b"123456789").unwrap();
    }
    assert_eq!(parts.into_iter().collect::<Vec<_>>(), [7, 8, 9]);
}

#[test]
fn a_slow_disk_says_so() {
    let disk = troubled(Troubles { slowness: 100, ..Troubles::default() }, 1);
    assert_eq!(disk.slowness(), 100);
    disk.end_troubles();
    assert_eq!(disk.slowness(), 1);
}

/// Two files of several blocks without a zero, each sector of which was written twice; and their contents before the second write.
fn at_rest() -> (SimDisk, BTreeMap<String, Vec<u8>>) {
    let mut disk = SimDisk::default();
    disk.keep_earlier();
    let mut before = BTreeMap::new();
    for (file, length, seed) in [("a", 9_000_usize, 1), ("b", 5_000, 2)] {
        let mut random = Random::new(seed);
        for _ in 0..2 {
            let words = (0..length / 8).map(|_| (random.bits() | 0x0101_0101_0101_0101).to_be_bytes());
            let bytes: Vec<u8> = words.flatten().collect();
            before.insert(file.to_owned(), read_or_nothing(&disk, file));
            disk.write(file, 0, &bytes).unwrap();
            disk.sync(file).unwrap();
        }
    }
    disk.sync_directory().unwrap();
    (disk, before)
}

fn read_or_nothing(disk: &SimDisk, file: &str) -> Vec<u8> {
    disk.read(file, 0, 100_000).unwrap_or_default()
}

/// Goal: damage is where it says, nowhere else, and lasts. Method: each byte that differs must be in one of its places.
#[test]
fn every_damage_changes_what_it_names_and_nothing_else() {
    for harm in Harm::ALL {
        for seed in 0..60 {
            let (disk, _) = at_rest();
            let whole = BTreeMap::from(["a", "b"].map(|file| (file.to_owned(), read_or_nothing(&disk, file))));
            let damage = disk.damage(harm, &mut Random::new(seed)).expect("there is enough to damage");
            disk.crash(&mut Random::new(seed));
            assert_eq!(damage.harm, harm);
            let mut differs = 0;
            for (file, before) in &whole {
                let after = read_or_nothing(&disk, file);
                for at in (0..before.len().max(after.len())).filter(|at| before.get(*at) != after.get(*at)) {
                    let named =
                        damage.places.iter().any(|place| place.file == *file && place.bytes.contains(&(at as u64)));
                    assert!(named, "{harm:?} changed byte {at} of {file}: {damage:?}");
                    differs += 1;
                }
            }
            assert!(differs > 0, "{damage:?}");
        }
    }
}

#[test]
fn damage_leaves_what_its_name_says() {
    for seed in 0..30 {
        let left = |harm| {
            let (disk, before) = at_rest();
            let whole = read(&disk, "a");
            let damage = disk.damage(harm, &mut Random::new(seed)).expect("there is enough to damage");
            let Place { file, bytes } = damage.places[0].clone();
            let range = bytes.start as usize..bytes.end as usize;
            (disk, damage.places.clone(), file, range, before, whole)
        };
        let (disk, _, file, range, ..) = left(Harm::ZeroedSector);
        assert!(range.start % 512 == 0 && read_or_nothing(&disk, &file)[range].iter().all(|byte| *byte == 0));
        let (disk, _, file, range, ..) = left(Harm::ZeroedBlock);
        assert!(range.start % 4096 == 0 && read_or_nothing(&disk, &file)[range].iter().all(|byte| *byte == 0));
        let (disk, _, file, range, ..) = left(Harm::Truncated);
        assert_eq!(disk.length(&file).unwrap(), range.start as u64);
        let (disk, _, file, range, before, _) = left(Harm::Stale);
        assert_eq!(read_or_nothing(&disk, &file)[range.clone()], before[&file][range]);
        let (disk, places, file, range, before, _) = left(Harm::Misdirected);
        assert_eq!(read_or_nothing(&disk, &file)[range.clone()], before[&file][range.clone()]);
        assert_ne!((&places[1].file, places[1].bytes.start), (&file, range.start as u64));
        let (disk, _, _, _, _, whole) = left(Harm::Swapped);
        assert!(read(&disk, "b") == whole && disk.length("a").unwrap() == 5_000);
        let (disk, _, file, ..) = left(Harm::Deleted);
        assert!(disk.length(&file).is_err() && disk.list().unwrap().len() == 1);
    }
}

#[test]
fn what_a_sector_held_when_the_file_was_shorter_can_come_back() {
    let mut disk = written();
    disk.keep_earlier();
    disk.write("a", 7, b"1234").unwrap();
    disk.sync("a").unwrap();
    let damage = disk.damage(Harm::Stale, &mut Random::new(1)).expect("the sector was written twice");
    assert_eq!(damage.places, [Place { file: "a".into(), bytes: 0..11 }]);
    assert_eq!(read(&disk, "a"), b"durable\0\0\0\0");
}

#[test]
fn what_cannot_be_damaged_is_not() {
    let random = &mut Random::new(1);
    assert!(Harm::ALL.into_iter().all(|harm| SimDisk::default().damage(harm, random).is_none()), "there is no file");
    let disk = written();
    assert_eq!(disk.damage(Harm::Swapped, random), None, "there is one file");
    assert_eq!(disk.damage(Harm::Stale, random), None, "nothing earlier was kept");
    assert_eq!(disk.damage(Harm::Misdirected, random), None, "there is one sector");
    assert!(disk.damage(Harm::ZeroedSector, random).is_some());
    assert_eq!(disk.damage(Harm::ZeroedSector, random), None, "all is zeroes");
}

#[test]
#[should_panic(expected = "bytes at rest")]
fn damage_is_not_done_while_something_is_pending() {
    let mut disk = written();
    disk.write("a", 0, b"x").unwrap();
    disk.damage(Harm::FlippedBit, &mut Random::new(1));
}
