//! Messages name what holds a change up, even a member that has no part in it. Method: a transport that answers by request.

use super::*;
use crate::Transport;
use crate::tests::{NOW_MS, nodes as node_views};
use norn_wire::response::{NodeView, Status};

/// Cluster that makes no progress, with the report of each member.
struct Stuck {
    survey: Survey,
    members: Vec<NodeView>,
    /// Reports by address.
    said: BTreeMap<String, Result<Status, Error>>,
    /// Whether the metadata group has no leader once the change was accepted.
    rootless: bool,
}

impl Transport for Stuck {
    async fn call(&self, call: Call, _: Option<Duration>) -> Result<Response, Error> {
        let Call::Request(request) = call else { panic!("requests alone are made") };
        match request {
            Request::Cluster if self.rootless => Err(Error::unavailable("the root has no leader")),
            Request::Cluster => Ok(Response::Cluster(Box::new(self.survey.view.clone()))),
            Request::Ring => Ok(Response::Partitions(self.survey.partitions.clone())),
            Request::Change { .. } => Ok(answer(changed(self.survey.view.clone())).remove(0)?),
            Request::Nodes => Ok(Response::Nodes(self.members.clone())),
            other => panic!("{other:?}"),
        }
    }

    async fn ask(&self, address: &str, _: Request) -> Result<Response, Error> {
        self.said[address].clone().map(|status| Response::Status(Box::new(status)))
    }
}

/// Four members that serve, and a move to the fourth.
fn stuck() -> Stuck {
    let mut survey = settled(4);
    survey.view.open = 1;
    survey.partitions[1] = partition(1, &[2, 3], &[2, 4], &[]);
    let template = node_views().remove(0);
    let member = |number: u16| NodeView {
        node: node(number),
        name: format!("n{number}"),
        address: format!("h{number}:1"),
        ..template.clone()
    };
    let members: Vec<NodeView> = (1..=4).map(member).collect();
    let said = members.iter().map(|member| (member.address.clone(), Ok(status()))).collect();
    Stuck { survey, members, said, rootless: false }
}

async fn told_of(stuck: &Stuck) -> String {
    let notes = Written::default();
    let output = Output::new(Written::default(), notes.clone(), false);
    let mut runner = Runner::new(stuck, output, Input::pipe(&b""[..]), Place::CommandLine);
    runner.clock = || NOW_MS;
    let line = ["cluster", "rebalance", "--timeout", "1ms"];
    let exit = runner.run(CommandLine::try_parse_from(line).expect("it is well formed").verb).await;
    assert_eq!(exit, Exit::Unavailable);
    notes.text()
}

#[tokio::test]
async fn members_that_are_short_of_disk_are_named_before_the_moves_that_wait_for_them() {
    let mut stuck = stuck();
    let counting = |counters: &[&str]| {
        Ok(Status { counters: counters.iter().map(|counter| ((*counter).to_owned(), 1)).collect(), ..status() })
    };
    stuck.said.insert("h2:1".to_owned(), counting(&["disk_short"]));
    stuck.said.insert("h3:1".to_owned(), counting(&["disk_bounded", "disk_short"]));
    let told = told_of(&stuck).await;
    let places =
        ["n2 is short of disk", "n3 takes nothing new, by its setting `disk_bytes_max`", "partition 1 moves to n2 n4"]
            .map(|words| told.find(words).unwrap_or_else(|| panic!("no {words:?} in {told}")));
    assert!(places.is_sorted() && !told.contains("n1 ") && !told.contains("n4 "), "{told}");
}

/// For example, the leader of the metadata group has an expired certificate.
#[tokio::test]
async fn members_that_are_not_reached_are_named_with_the_reason() {
    let mut stuck = stuck();
    let expired = "the node shows a certificate that has expired; renew it";
    stuck.said.insert("h1:1".to_owned(), Err(Error::invalid(expired)));
    stuck.members[2].unreached_from = nodes(&[1, 4]);
    for rootless in [false, true] {
        stuck.rootless = rootless;
        let told = told_of(&stuck).await;
        for words in [&format!("n1 at h1:1 does not answer this command: {expired}"), "n3 is not reached from n1 n4"] {
            assert!(told.contains(words), "no {words:?} in {told}");
        }
        assert_eq!(told.contains("the root has no leader that can be reached"), rootless, "{told}");
    }
}

/// As counted by the answering node: the leader of the metadata group may hear all of them.
#[tokio::test]
async fn a_status_says_that_members_are_not_reached_by_all() {
    let counters = vec![("members_unreached".to_owned(), 1)];
    let status = || Ok(Response::Status(Box::new(Status { counters: counters.clone(), ..status() })));
    for (line, answers) in
        [("cluster status", [vec![status()], look(&settled(4))].concat()), ("status", vec![status()])]
    {
        let outcome = run(line, answers).await;
        assert!(
            outcome.printed.contains("1 of them not reached by all others; `norn nodes` says by whom"),
            "{outcome:?}"
        );
    }
}
