//! Addresses of members, as set by an operator.

use super::*;

#[tokio::test]
async fn an_address_at_which_a_member_is_not_reached_is_refused_unless_it_is_not_to_be_tried() {
    let away = || Err(Error::unavailable("nobody listens there"));
    let told = run_all("cluster set address n4 h:1", [look(&settled(4)), vec![away()]].concat()).await;
    assert!(told.outcome.exit == Exit::Unavailable && changes(&told.outcome).is_empty(), "{:?}", told.outcome);
    assert_eq!(told.asked, [("h:1".to_owned(), Request::Identify)]);
    for words in ["nothing was changed: n4 is not reached at h:1: nobody listens there", "--untried"] {
        assert!(told.outcome.noted.contains(words), "no {words:?} in {}", told.outcome.noted);
    }
    // A current address, and one that is not to be tried, are accepted.
    for line in ["cluster set address n4 h:1 --untried", "cluster set address n4 10.0.0.4:7400"] {
        let told = run_all(line, [look(&settled(4)), answer(changed(view(4)))].concat()).await;
        assert!(told.outcome.exit == Exit::Done && told.asked.is_empty(), "{line}: {:?}", told.outcome);
    }
}
