//! Detection of late copies of other nodes' questions.

use norn_wire::NodeId;
use std::collections::BTreeMap;

/// Latest number of each node's questions of one kind. A node's numbers only grow, also over its restarts.
#[derive(Debug, Default)]
pub struct Latest(BTreeMap<NodeId, u64>);

impl Latest {
    /// Whether a number is later than all before it from its node. False for a copy, and for a question that was overtaken on its
    /// way.
    pub fn is_news(&mut self, from: NodeId, number: u64) -> bool {
        let latest = self.0.entry(from).or_default();
        let is_news = number > *latest;
        *latest = number.max(*latest);
        is_news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_news_once_and_not_behind_a_later_one() {
        let (mut latest, one, two) = (Latest::default(), NodeId(1), NodeId(2));
        let heard = [(one, 5), (one, 5), (two, 5), (one, 4), (one, 6), (two, 6)];
        let news = heard.map(|(from, number)| latest.is_news(from, number));
        assert_eq!(news, [true, false, true, false, true, true]);
    }
}
