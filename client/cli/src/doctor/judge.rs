//! What is wrong with a cluster, by what its members say.

use super::super::text::{clean, number};
use super::{ClusterSeen, Member};
use norn_client::api::Finding;
use norn_client::tls::Date;
use norn_wire::response::{Health, Standing, Status};
use norn_wire::{Error, ErrorCode, NodeId, PartitionId};
use std::collections::{BTreeMap, BTreeSet};

/// Most things named in a finding.
const NAMED_MAX: usize = 8;
/// Period before its end in which a certificate is warned about, as nodes do.
const WARN_S: i64 = 30 * 86_400;

/// Makes all checks, in the order of their names.
pub(super) fn all(seen: &ClusterSeen, now_s: i64) -> Vec<Finding<'static>> {
    vec![
        cluster(seen),
        members(seen),
        certificates(seen, now_s),
        versions(seen),
        clocks(seen),
        leaders(seen),
        replicas(seen),
        losses(seen),
        room(seen),
        hints(seen),
        layout(seen),
    ]
}

fn listed(mut things: Vec<String>) -> String {
    let more = things.len().saturating_sub(NAMED_MAX);
    things.truncate(NAMED_MAX);
    if more > 0 {
        things.push(format!("{more} more"));
    }
    things.join("; ")
}

fn name(member: &Member) -> String {
    clean(&member.view.name)
}

fn name_of(seen: &ClusterSeen, node: NodeId) -> String {
    let found = seen.nodes.iter().find(|view| view.node == node);
    found.map_or_else(|| format!("{node:?}"), |view| clean(&view.name))
}

fn counter(status: &Status, name: &str) -> u64 {
    status.counters.iter().find(|(counter, _)| counter == name).map_or(0, |(_, value)| *value)
}

/// Text and advice of a fault.
struct Fault {
    what: String,
    advice: &'static str,
}

/// Answer of each member that a check needs.
#[derive(Debug, Clone, Copy)]
enum Needs {
    Status,
    Partitions,
}

/// Returns a finding about each member: failures first, then warnings, and always those that could not be asked.
fn of_members(
    (check, needs): (&'static str, Needs),
    seen: &ClusterSeen,
    good: &str,
    faults: (Vec<Fault>, Vec<Fault>),
) -> Finding<'static> {
    let is_silent = |member: &&Member| match needs {
        Needs::Status => member.status.is_err(),
        Needs::Partitions => member.partitions.is_err(),
    };
    let silent: Vec<String> = seen.members.iter().filter(is_silent).map(name).collect();
    let (failures, warnings) = faults;
    let is_failure = !failures.is_empty();
    let all: Vec<Fault> = failures.into_iter().chain(warnings).collect();
    let mut advice: Vec<&str> = Vec::new();
    for fault in &all {
        if !advice.contains(&fault.advice) {
            advice.push(fault.advice);
        }
    }
    let advice = advice.join("; ");
    let what: Vec<String> = all.into_iter().map(|fault| fault.what).collect();
    if what.is_empty() && silent.is_empty() {
        return Finding::ok(check, good);
    }
    let unasked = format!("not checked: {}, which did not answer", silent.join(", "));
    if what.is_empty() {
        return Finding::warn(check, unasked, "see `members`");
    }
    let unasked = Some(unasked).filter(|_| !silent.is_empty());
    let what = std::iter::once(listed(what)).chain(unasked).collect::<Vec<_>>().join("; ");
    match is_failure {
        true => Finding::fail(check, what, advice),
        false => Finding::warn(check, what, advice),
    }
}

fn cluster(seen: &ClusterSeen) -> Finding<'static> {
    let Status { cluster, name, node, nodes, .. } = &seen.status;
    let by = name_of(seen, *node);
    let (name, members) = (clean(name), number(u64::from(nodes.0), "member"));
    Finding::ok("cluster", format!("{name} {cluster} with {members}; {by} answers"))
}

fn members(seen: &ClusterSeen) -> Finding<'static> {
    let (mut silent, mut apart) = (Vec::new(), Vec::new());
    let is_unable = |error: &Error| error.code == ErrorCode::Unsupported;
    for member in &seen.members {
        let (name, address) = (name(member), clean(&member.view.address));
        match &member.status {
            Err(error) if is_unable(error) => {
                return Finding::not_checked("members", "this program cannot ask single nodes", "use `norn doctor`");
            }
            Err(error) => silent.push(format!("{name} at {address} does not answer: {}", clean(&error.message))),
            Ok(_) if !member.view.alive => apart.push(format!("{name} answers here, and the cluster does not hear it")),
            Ok(_) if !member.view.unreached_from.is_empty() => {
                let from: Vec<String> = member.view.unreached_from.iter().map(|node| name_of(seen, *node)).collect();
                apart.push(format!("{name} is not reached from {}", from.join(", ")));
            }
            Ok(_) => {}
        }
    }
    let all = seen.members.len();
    if !silent.is_empty() {
        let what = format!("{} of {all} answer; {}", all - silent.len(), listed(silent));
        let advice = "see that these nodes run, and that UDP passes to their addresses; `norn cluster replace` puts another node in the \
                      place of one that is lost";
        return Finding::fail("members", what, advice);
    }
    if !apart.is_empty() {
        let advice = "see that UDP passes between these nodes in both directions, at the addresses that they advertise";
        return Finding::fail("members", listed(apart), advice);
    }
    Finding::ok("members", format!("{all} of {all} answer, and reach each other"))
}

fn certificates(seen: &ClusterSeen, now_s: i64) -> Finding<'static> {
    const RENEW: &str = "make new ones with `norn cert node NAME --renew`, and put them in the place of the old ones; no restart is needed";
    let (mut ends, mut unknown) = (Vec::new(), Vec::new());
    for member in &seen.members {
        match &member.certificate_until_s {
            Ok(Some(until_s)) => ends.push((*until_s, name(member))),
            Ok(None) | Err(_) => unknown.push(name(member)),
        }
    }
    ends.sort();
    let shown = |(until_s, name): &(i64, String)| format!("{name} until {}", Date(*until_s));
    let due: Vec<String> = ends.iter().filter(|(until_s, _)| until_s - now_s <= WARN_S).map(shown).collect();
    let unknown = (!unknown.is_empty()).then(|| format!("not checked: {}, which showed none", unknown.join(", ")));
    if !due.is_empty() {
        let seen = std::iter::once(listed(due)).chain(unknown).collect::<Vec<_>>().join("; ");
        return Finding::warn("member_certificates", seen, RENEW);
    }
    match (unknown, ends.first()) {
        (None, Some(first)) => Finding::ok("member_certificates", format!("the first to end is {}", shown(first))),
        (unknown, _) => {
            let seen = unknown.unwrap_or_else(|| "not checked: no member is known".to_owned());
            Finding::warn("member_certificates", seen, "run `norn doctor` on the machines of these nodes")
        }
    }
}

fn versions(seen: &ClusterSeen) -> Finding<'static> {
    let mut names: BTreeMap<Option<u8>, Vec<String>> = BTreeMap::new();
    seen.members.iter().for_each(|member| names.entry(member.view.version).or_default().push(name(member)));
    let shown = |(version, names): (&Option<u8>, &Vec<String>)| match version {
        Some(version) => format!("protocol {version}: {}", names.join(", ")),
        None => format!("not checked: {}, never heard by the node that answers", names.join(", ")),
    };
    let text = listed(names.iter().map(shown).collect());
    let heard = names.keys().flatten().count();
    match names.contains_key(&None) {
        false if heard == 1 => Finding::ok("versions", text),
        true if heard < 2 => Finding::warn("versions", text, "see `members`"),
        _ => Finding::warn(
            "versions",
            text,
            "finish the upgrade: restart the older nodes with the newer program, one by one",
        ),
    }
}

fn clocks(seen: &ClusterSeen) -> Finding<'static> {
    let (mut failures, mut warnings, mut largest_ms) = (Vec::new(), Vec::new(), 0);
    for member in &seen.members {
        let (name, view) = (name(member), &member.view);
        let offset =
            view.clock_offset_ms.map_or_else(String::new, |ms| format!(", {ms:+}ms from the node that answers"));
        largest_ms = largest_ms.max(view.clock_offset_ms.map_or(0, i64::unsigned_abs));
        match view.clock {
            Standing::Good => {}
            Standing::Unknown => {
                let advice = "look again once a majority of the members reach each other";
                warnings.push(Fault { what: format!("{name}: no majority to compare with{offset}"), advice });
            }
            Standing::Suspect => {
                let what = format!("{name}: more than half of `clock_epsilon_ms` off{offset}");
                warnings.push(Fault { what, advice: "set up NTP there (`chronyc tracking`, `timedatectl`)" });
            }
            Standing::Fenced => {
                let what =
                    format!("{name}: more than four fifths of `clock_epsilon_ms` off, so it leads nothing{offset}");
                failures.push(Fault {
                    what,
                    advice: "set that clock, and set up NTP there (`chronyc tracking`, `timedatectl`)",
                });
            }
        }
    }
    let good =
        format!("all agree within half of their `clock_epsilon_ms`; at most {largest_ms}ms from the node that answers");
    of_members(("clocks", Needs::Status), seen, &good, (failures, warnings))
}

/// Returns the numbers of partitions, for people.
fn numbers(partitions: &BTreeSet<PartitionId>) -> String {
    listed(partitions.iter().map(ToString::to_string).collect()).replace("; ", ", ")
}

fn leaders(seen: &ClusterSeen) -> Finding<'static> {
    let told = seen.members.iter().filter_map(|member| member.partitions.as_ref().ok()).flatten();
    let led: BTreeSet<PartitionId> =
        told.chain(&seen.partitions).filter(|view| view.leader.is_some()).map(|view| view.partition).collect();
    let without: BTreeSet<PartitionId> =
        seen.partitions.iter().map(|view| view.partition).filter(|partition| !led.contains(partition)).collect();
    let all = seen.partitions.len();
    if without.is_empty() {
        return Finding::ok("leaders", format!("{all} of {all} partitions have a leader"));
    }
    let seen = format!("{} of {all} partitions have no leader: {}", without.len(), numbers(&without));
    let advice = "start the nodes that hold them (`norn partitions`), so that a majority of each is up; where they are lost for good, \
                  `norn cluster recover` is the last resort";
    Finding::fail("leaders", seen, advice)
}

fn replicas(seen: &ClusterSeen) -> Finding<'static> {
    let mut warnings = Vec::new();
    for member in &seen.members {
        let Ok(views) = &member.partitions else { continue };
        let is_apart = |view: &&norn_wire::response::PartitionView| view.agreements.iter().any(|with| with.apart);
        let apart: BTreeSet<PartitionId> = views.iter().filter(is_apart).map(|view| view.partition).collect();
        if !apart.is_empty() {
            let what = format!("{} differs from others in {}", name(member), numbers(&apart));
            let advice = "nodes make replicas equal by themselves: look again in a minute; if it stays, see `members`, and \
                          `repair_bytes_per_second`";
            warnings.push(Fault { what, advice });
        }
    }
    of_members(("replicas", Needs::Partitions), seen, "no replica is apart from another", (Vec::new(), warnings))
}

fn losses(seen: &ClusterSeen) -> Finding<'static> {
    let (mut failures, mut warnings) = (Vec::new(), Vec::new());
    let mut lacking: BTreeMap<PartitionId, (usize, usize)> = BTreeMap::new();
    for member in &seen.members {
        let name = name(member);
        let mut here = BTreeSet::new();
        for view in member.partitions.iter().flatten().filter(|view| {
            view.cohort.contains(&member.view.node) && view.health.is_some_and(|health| health != Health::Whole)
        }) {
            here.insert(view.partition);
            lacking.entry(view.partition).or_insert((0, view.cohort.len())).0 += 1;
        }
        if !here.is_empty() {
            let what = format!("{name} lacks data in {}", numbers(&here));
            warnings
                .push(Fault { what, advice: "it is fetched from the other replicas: keep these up, and look again" });
        }
        let Ok(status) = &member.status else { continue };
        let count = |counter_name: &str| counter(status, counter_name);
        if count("scrub_damages") > 0 {
            let what = format!("{name} finds damaged files in its log");
            failures
                .push(Fault { what, advice: "see `norn log verify` there, and the disk itself (`smartctl`, `dmesg`)" });
        }
        if count("bodies_lost") > 0 {
            let what = format!("{name} lost parts of {}", number(count("bodies_lost"), "task"));
            failures.push(Fault { what, advice: "its log names them, and `norn get` shows what each replica lost" });
        }
        if count("data_losses") > 0 && here.is_empty() {
            let what = format!("{name} had lost data since its start, and has it again");
            warnings.push(Fault { what, advice: "see its log, and the disk itself (`smartctl`, `dmesg`)" });
        }
        if count("stale_log_found") > 0 {
            let what = format!("{name} runs on an older image of its data directory");
            failures.push(Fault {
                what,
                advice: "never start a node on a restored copy; it is repaired by the others, keep these up",
            });
        }
    }
    let no_majority = |(count, all): &(usize, usize)| all - (*count).min(*all) < all / 2 + 1;
    let short: BTreeSet<PartitionId> =
        lacking.iter().filter(|(_, counts)| no_majority(counts)).map(|(partition, _)| *partition).collect();
    if !short.is_empty() {
        let what = format!("no majority of whole replicas in {}", numbers(&short));
        failures.insert(0, Fault { what, advice: "start the nodes that hold the other replicas" });
    }
    of_members(("losses", Needs::Partitions), seen, "all replicas are whole", (failures, warnings))
}

fn room(seen: &ClusterSeen) -> Finding<'static> {
    let mut failures = Vec::new();
    for member in &seen.members {
        let (name, Ok(status)) = (name(member), &member.status) else { continue };
        for (flag, what, advice) in [
            ("disk_bounded", "takes nothing new, by its setting `disk_bytes_max`", "raise `disk_bytes_max`"),
            (
                "disk_short",
                "is short of disk, and takes nothing new",
                "make room on that disk, and remove no file of the data directory",
            ),
            (
                "memory_short",
                "is short of memory, and takes nothing new",
                "raise its memory, or `memory_bytes_max`, or complete tasks",
            ),
        ] {
            // A limit that is reached is a shortage, too.
            if counter(status, flag) > 0 && !(flag == "disk_short" && counter(status, "disk_bounded") > 0) {
                failures.push(Fault { what: format!("{name} {what}"), advice });
            }
        }
    }
    of_members(
        ("member_room", Needs::Status),
        seen,
        "each member has room on its disk and in memory",
        (failures, Vec::new()),
    )
}

fn hints(seen: &ClusterSeen) -> Finding<'static> {
    let (mut failures, mut warnings, mut pending) = (Vec::new(), Vec::new(), 0);
    for member in &seen.members {
        let (name, Ok(status)) = (name(member), &member.status) else { continue };
        let kept = counter(status, "hint_tasks");
        pending += counter(status, "hint_ids");
        if kept > 0 {
            let what = format!("{name} keeps {} for replicas that are away", number(kept, "task"));
            warnings.push(Fault { what, advice: "start the nodes that are away: what is kept may be nowhere else" });
        }
        let orphaned = counter(status, "hints_orphaned");
        if orphaned > 0 {
            let what = format!("{name} keeps {} that can never be handed over", number(orphaned, "task"));
            failures.push(Fault { what, advice: "its log names them; enqueue what is still needed again" });
        }
        let dropped = counter(status, "hints_dropped");
        if dropped > 0 {
            let what = format!("{name} has dropped {} since its start", number(dropped, "hint"));
            warnings.push(Fault { what, advice: "anti-entropy makes up for it; see `hints_bytes_max`" });
        }
    }
    let noted = number(pending, "task");
    of_members(
        ("hints", Needs::Status),
        seen,
        &format!("none kept for others; {noted} noted for absent replicas"),
        (failures, warnings),
    )
}

fn layout(seen: &ClusterSeen) -> Finding<'static> {
    let survey = match &seen.survey {
        Ok(survey) => survey,
        Err(error) => {
            let what = format!("the metadata group does not answer: {}", clean(&error.message));
            return Finding::fail(
                "layout",
                what,
                "start its voters (`norn cluster status`), so that a majority of them is up",
            );
        }
    };
    let version = format!("version {}", survey.view.layout);
    if survey.is_settled() {
        return Finding::ok("layout", format!("{version}; each partition is where it shall be"));
    }
    let what = format!("{version}; {} not where they shall be yet", number(survey.open(), "partition"));
    Finding::warn(
        "layout",
        what,
        "`norn cluster status --watch` shows the moves; nothing is to be done while they go on",
    )
}
