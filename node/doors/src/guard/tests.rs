use super::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

const LIMITS: Limits = Limits { head: Duration::from_secs(10), idle: Duration::from_secs(75), one_by_one: true };

fn guarded() -> (DuplexStream, Guard<DuplexStream>, Arc<Activity>) {
    let (near, far) = tokio::io::duplex(64);
    let activity = Arc::default();
    (near, Guard::new(far, LIMITS, Arc::clone(&activity), Arc::default()), activity)
}

/// How long a read waits until it fails.
async fn fails_after(guard: &mut Guard<DuplexStream>) -> Duration {
    let begin = Instant::now();
    let error = guard.read_u8().await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    begin.elapsed()
}

fn about(duration: Duration, s: u64) -> bool {
    duration.as_secs() == s
}

#[tokio::test(start_paused = true)]
async fn a_connection_without_a_byte_ends() {
    let (_near, mut guard, _) = guarded();
    assert!(about(fails_after(&mut guard).await, 10));
}

#[tokio::test(start_paused = true)]
async fn headers_that_trickle_end_in_time_however_steadily_they_come() {
    let (mut near, mut guard, _) = guarded();
    let begin = Instant::now();
    tokio::spawn(async move {
        while near.write_u8(b'x').await.is_ok() {
            tokio::time::sleep(Duration::from_millis(900)).await;
        }
    });
    while guard.read_u8().await.is_ok() {}
    assert!(about(begin.elapsed(), 10), "{:?}", begin.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_request_under_way_has_no_limit_here_and_an_idle_connection_has_the_longer_one() {
    let (mut near, mut guard, activity) = guarded();
    near.write_u8(b'x').await.unwrap();
    guard.read_u8().await.unwrap();
    let underway = activity.begin(None);
    let waits = tokio::time::timeout(Duration::from_secs(3_600), guard.read_u8()).await;
    assert!(waits.is_err(), "the answer takes its time");
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(5)).await;
        drop(underway);
    });
    assert!(about(fails_after(&mut guard).await, 80));
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_takes_no_byte_ends() {
    let (_near, mut guard, _) = guarded();
    let begin = Instant::now();
    let error = guard.write_all(&[0; 1_000]).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    assert!(about(begin.elapsed(), 75));
}

#[test]
fn a_head_ends_with_its_first_empty_line() {
    for (text, end) in [
        ("GET / HTTP/1.1\r\nhost: a\r\n\r\nGET", Some(27)),
        ("\r\n\r\nGET / HTTP/1.1\r\n\r\n", Some(22)),
        ("GET / HTTP/1.1\n\n", Some(16)),
        ("GET / HTTP/1.1\r\nhost: a\r\n", None),
        ("\r\n\r\n", None),
    ] {
        let mut head = Head::NEW;
        assert_eq!(head.end_in(text.as_bytes()), end, "{text:?}");
        let mut head = Head::NEW;
        let found = text.bytes().position(|byte| head.end_in(&[byte]).is_some());
        assert_eq!(found.map(|last| last + 1), end, "{text:?}, byte by byte");
    }
}

#[tokio::test(start_paused = true)]
async fn the_library_is_given_one_request_at_a_time() {
    let (near, far) = tokio::io::duplex(1 << 10);
    let (mut near, activity) = (near, Arc::new(Activity::default()));
    let mut guard = Guard::new(far, LIMITS, Arc::clone(&activity), Arc::default());
    near.write_all(b"POST /a HTTP/1.1\r\n\r\n12345GET /b HTTP/1.1\r\n\r\nGET /c").await.unwrap();
    let mut bytes = vec![0; 1 << 10];
    for (part, body_bytes) in [("POST /a HTTP/1.1\r\n\r\n", 5), ("GET /b HTTP/1.1\r\n\r\n", 0)] {
        let length = guard.read(&mut bytes).await.unwrap();
        assert_eq!(&bytes[..length], part.as_bytes());
        let underway = activity.begin(Some(body_bytes));
        if body_bytes > 0 {
            assert_eq!(guard.read(&mut bytes).await.unwrap(), 5);
            assert_eq!(&bytes[..5], b"12345");
        }
        let more = tokio::time::timeout(Duration::from_secs(3_600), guard.read(&mut bytes)).await;
        assert!(more.is_err(), "the next request waits for the end of this one");
        drop(underway);
    }
    let length = guard.read(&mut bytes).await.unwrap();
    assert_eq!(&bytes[..length], b"GET /c");
    assert!(about(fails_after(&mut guard).await, 10), "a part of a head has the time of heads");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_hangs_up_is_noticed_whatever_it_has_sent_ahead() {
    let (near, far) = tokio::io::duplex(1 << 10);
    let (mut near, activity) = (near, Arc::new(Activity::default()));
    let mut guard = Guard::new(far, LIMITS, Arc::clone(&activity), Arc::default());
    near.write_all(b"GET /a HTTP/1.1\r\n\r\nGET /b HTTP/1.1\r\n\r\nGET /c").await.unwrap();
    let mut bytes = vec![0; 1 << 10];
    assert!(guard.read(&mut bytes).await.unwrap() > 0);
    let _underway = activity.begin(Some(0));
    drop(near);
    assert_eq!(guard.read(&mut bytes).await.unwrap(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_part_of_a_head_that_came_with_the_request_before_has_the_time_of_heads() {
    let (mut near, mut guard, activity) = guarded();
    let underway = activity.begin(Some(0));
    near.write_all(b"GET ").await.unwrap();
    let mut bytes = [0; 16];
    assert!(tokio::time::timeout(Duration::from_secs(60), guard.read(&mut bytes)).await.is_err());
    drop(underway);
    assert_eq!(guard.read(&mut bytes).await.unwrap(), 4);
    assert!(about(fails_after(&mut guard).await, 10));
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_closes_ends_once_no_request_is_under_way() {
    let (mut near, mut guard, activity) = guarded();
    near.write_all(b"GET /a HTTP/1.1\r\n\r\n").await.unwrap();
    let mut bytes = [0; 64];
    assert!(guard.read(&mut bytes).await.unwrap() > 0);
    let underway = activity.begin(Some(0));
    activity.close();
    near.write_all(b"GET /b").await.unwrap();
    assert!(tokio::time::timeout(Duration::from_secs(60), guard.read(&mut bytes)).await.is_err());
    drop(underway);
    assert_eq!(guard.read(&mut bytes).await.unwrap(), 0, "what has come of the next request is no request");
}
