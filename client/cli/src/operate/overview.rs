//! `cluster status` for people: members, settings, moves, and each member's part in them.

use super::super::output::{Output, Style};
use super::super::text::{clean, number, wrapped};
use super::super::{Failure, Runner, Transport};
use super::survey::{Survey, comers};
use super::{rows, set};
use comfy_table::{Attribute, Cell, Color};
use norn_client::api::PartitionPhase;
use norn_wire::membership::{Member, MemberState, Share};
use norn_wire::response::{PartitionView, Status};
use norn_wire::{ClusterId, NodeId};
use std::collections::{BTreeMap, BTreeSet};

/// Most moving partitions shown.
const SHOWN_MAX: usize = 20;
/// Width of the labels of the first lines.
const LABEL_CHARACTERS: usize = 12;
/// Lines in addition to head, members and partitions: two of titles, two blank ones, left-out columns in two lines, the number of unshown
/// rows twice, and the cursor's.
const SPARE_LINES: usize = 9;
/// Width of the bar of partitions that are in place.
const BAR_CHARACTERS: usize = 30;
/// Width of a member's bar.
const MEMBER_BAR_CHARACTERS: usize = 20;

/// For each member, the most replicas that had to come and go at once since the command started: the full length of its bar.
#[derive(Debug, Default)]
pub struct Peaks(BTreeMap<NodeId, u32>);

impl Peaks {
    /// Formats how many of the replicas to come and go have moved; empty if there are none.
    pub(super) fn bar(&mut self, node: NodeId, share: Share) -> String {
        let left = share.come.saturating_add(share.go);
        let peak = self.0.entry(node).or_default();
        // A finished change is forgotten, so that the next one begins an empty bar.
        *peak = if left == 0 { 0 } else { left.max(*peak) };
        if left == 0 {
            return String::new();
        }
        let moved = *peak - left;
        let filled = (MEMBER_BAR_CHARACTERS as u64 * u64::from(moved) / u64::from(*peak)) as usize;
        format!("[{:<MEMBER_BAR_CHARACTERS$}] {moved} of {peak}", "#".repeat(filled))
    }
}

/// Width of a member's bar and its numbers of moved replicas.
const MOVED_CHARACTERS: u16 = MEMBER_BAR_CHARACTERS as u16 + 13;

/// Fetches the state of the cluster and shows it, with the status of the answering node. With `peaks`, when shown repeatedly, it clears
/// the screen and shows bars.
pub async fn show<T: Transport>(
    runner: &mut Runner<T>,
    status: &Status,
    peaks: Option<&mut Peaks>,
) -> Result<(), Failure> {
    let survey = Survey::take(runner, None).await?;
    if peaks.is_some() {
        runner.output.clear()?;
    }
    let output = &mut runner.output;
    if output.json() {
        return output.object(&rows::overview(status, &survey));
    }
    // A repeated status fits the screen.
    let screen = peaks.as_ref().and_then(|_| output.size()).map(|(_, lines)| usize::from(lines));
    let mut lines = head(output, &survey, status);
    lines.extend(partitions(output, &survey));
    lines.extend(labelled(output, "settings", None, &set::overview(&survey.view.settings)));
    lines.truncate(screen.map_or(usize::MAX, |all| all.saturating_sub(1)));
    lines.iter().try_for_each(|line| output.line(line))?;
    let room = screen.map_or(usize::MAX, |all| all.saturating_sub(lines.len() + SPARE_LINES));
    if room == 0 {
        return Ok(());
    }
    output.line("")?;
    let members_shown = members(output, &survey, peaks, room)?;
    under_way(output, &survey, (room - members_shown).min(SHOWN_MAX), screen.is_some())
}

/// Returns the lines of a text behind its label, wrapped under itself at the edge of the screen.
pub fn labelled(output: &Output, label: &str, style: Option<Style>, text: &str) -> Vec<String> {
    let room = output.size().map_or(usize::MAX, |(columns, _)| usize::from(columns).saturating_sub(LABEL_CHARACTERS));
    let line = |(place, line): (usize, &String)| {
        let label = if place == 0 { label } else { "" };
        let text = style.map_or_else(|| line.clone(), |style| output.paint(style, line));
        format!("{label:LABEL_CHARACTERS$}{text}")
    };
    wrapped(text, room).iter().enumerate().map(line).collect()
}

/// Formats name and id of the cluster.
pub fn cluster(output: &Output, name: &str, id: ClusterId) -> Vec<String> {
    let name = clean(name);
    let mut lines = labelled(output, "cluster", None, &format!("{name} {id}"));
    let text = lines[0].split_off(LABEL_CHARACTERS);
    lines[0] += &text.replacen(&name, &output.paint(Style::Bold, &name), 1);
    lines
}

/// Reports members that are heard but not reached by others, as counted by the answering node.
pub fn unreached(status: &Status) -> Option<String> {
    let count =
        status.counters.iter().find(|(counter, _)| counter == "members_unreached").map_or(0, |(_, count)| *count);
    (count > 0).then(|| format!("{count} of them not reached by all others; `norn nodes` says by whom"))
}

fn head(output: &Output, survey: &Survey, status: &Status) -> Vec<String> {
    let view = &survey.view;
    let mut lines = cluster(output, &view.name, view.cluster);
    let present: Vec<&Member> = view.roster.members.values().filter(|member| member.state.is_present()).collect();
    let dead: Vec<NodeId> = present.iter().map(|member| member.node).filter(|node| !survey.is_alive(*node)).collect();
    let nodes = format!("{} of {} alive", present.len() - dead.len(), present.len());
    let (style, nodes) = match dead[..] {
        [] => (Style::Good, nodes),
        _ => (Style::Bad, format!("{nodes}; down: {}", survey.names(&dead))),
    };
    lines.extend(labelled(output, "members", Some(style), &nodes));
    if let Some(warning) = unreached(status) {
        lines.extend(labelled(output, "", Some(Style::Bad), &warning));
    }
    let (leader, voters) = (survey.name(view.leader), survey.names(&view.voters));
    let root = format!("led by {leader}, voters {voters}, version {}", view.roster.version);
    lines.extend(labelled(output, "root", None, &root));
    lines
}

fn partitions(output: &Output, survey: &Survey) -> Vec<String> {
    let (view, all) = (&survey.view, survey.partitions.len());
    let replicas = number(u64::from(view.replicas), "replica");
    let stale = if view.stale { ", about to be planned anew" } else { "" };
    let layout = format!("version {}, {replicas} of each partition{stale}", view.layout);
    let mut lines = labelled(output, "layout", None, &layout);
    let open = survey.open().min(all as u64) as usize;
    // While the layout waits to be planned anew, places refer to the last one.
    let place = if view.stale { "where the last layout wants them" } else { "where they shall be" };
    let mut states = format!("{} of {all} {place}", all - open);
    if open > 0 {
        states += &format!(", {} moving", view.moving.len());
    }
    let left: Vec<&PartitionView> =
        survey.partitions.iter().filter(|view| survey.phase(view) == PartitionPhase::Left).collect();
    if !left.is_empty() {
        let by: BTreeSet<&NodeId> = left.iter().flat_map(|view| &view.leaving).collect();
        states += &format!(", {} left by nodes that are down ({})", left.len(), survey.names(by));
    }
    if view.unknown > 0 {
        states += &format!(", {} not known to the root", view.unknown);
    }
    let style = if survey.is_settled() { Style::Good } else { Style::Busy };
    let width = states.chars().count();
    lines.extend(labelled(output, "partitions", Some(style), &states));
    if open > 0 {
        let filled = BAR_CHARACTERS * (all - open) / all.max(1);
        let bar = format!("[{:<BAR_CHARACTERS$}]", "#".repeat(filled));
        let behind = LABEL_CHARACTERS + width + 2 + bar.len();
        match (output.size(), lines.last_mut()) {
            (Some((columns, _)), _) if behind > usize::from(columns) => {
                lines.push(format!("{:LABEL_CHARACTERS$}{bar}", ""));
            }
            (_, Some(last)) => *last += &format!("  {bar}"),
            (_, None) => {}
        }
    }
    let led = survey.partitions.iter().filter(|view| view.leader.is_some()).count();
    let style = if led == all { Style::Good } else { Style::Bad };
    lines.extend(labelled(output, "leaders", Some(style), &format!("{led} of {all} with a leader")));
    lines
}

/// Shows members, as many as fit. Returns their number.
fn members(
    output: &mut Output,
    survey: &Survey,
    mut peaks: Option<&mut Peaks>,
    shown_max: usize,
) -> Result<usize, Failure> {
    let (view, leads) = (&survey.view, survey.leads());
    let mut titles = vec![
        "#NUMBER", "NAME", "ADDRESS", "ZONE", "#WEIGHT", "STATE", "ROOT", "#LEADS", "#HOLDS", "#COME", "#GO", "NODE",
    ];
    if peaks.is_some() {
        titles.push("MOVED");
    }
    let mut table = output.new_table(&titles).spare(&["NODE", "WEIGHT", "ZONE", "NUMBER", "ADDRESS", "ROOT", "LEADS"]);
    if peaks.is_some() {
        table = table.wish("MOVED", MOVED_CHARACTERS).one_line();
    }
    let count = rows::shown(survey).count();
    for (place, member) in rows::shown(survey).take(shown_max) {
        let share = view.shares.get(&place).copied().unwrap_or_default();
        let root = match (member.node == view.leader, view.voters.contains(&member.node)) {
            (true, _) => "leads",
            (false, true) => "votes",
            (false, false) => "",
        };
        let mut row = vec![
            Cell::new(place),
            Cell::new(clean(&member.name)).add_attribute(Attribute::Bold),
            Cell::new(clean(&member.address)),
            Cell::new(clean(&member.zone)),
            Cell::new(member.weight),
            state(survey, member),
            Cell::new(root),
            Cell::new(leads.get(&member.node).copied().unwrap_or_default()),
            Cell::new(share.stay.saturating_add(share.go)),
            Cell::new(share.come),
            Cell::new(share.go),
            Cell::new(member.node),
        ];
        row.extend(peaks.as_mut().map(|peaks| Cell::new(peaks.bar(member.node, share))));
        table.add_row(row);
    }
    output.table(&mut table)?;
    if count > shown_max {
        let members = number((count - shown_max) as u64, "more member");
        output.line(&format!("and {members}"))?;
    }
    Ok(count.min(shown_max))
}

fn state(survey: &Survey, member: &Member) -> Cell {
    match (member.state, survey.is_alive(member.node)) {
        (MemberState::Gone, _) => Cell::new(member.state).add_attribute(Attribute::Dim),
        (state, false) => Cell::new(format!("{state}, silent")).fg(Color::Red),
        (MemberState::Up, true) => Cell::new(MemberState::Up).fg(Color::Green),
        (state, true) => Cell::new(state).fg(Color::Yellow),
    }
}

fn under_way(output: &mut Output, survey: &Survey, shown_max: usize, one_line: bool) -> Result<(), Failure> {
    let views: Vec<&PartitionView> = survey.partitions.iter().filter(|view| survey.is_under_way(view)).collect();
    if views.is_empty() {
        return Ok(());
    }
    output.line("")?;
    if shown_max == 0 {
        return output.line(&format!("{} under way", number(views.len() as u64, "partition")));
    }
    let mut table =
        output.new_table(&["#PARTITION", "STATE", "LEADER", "NODES", "COMING", "LEAVING"]).spare(&["LEADER"]);
    if one_line {
        table = table.one_line();
    }
    for view in views.iter().take(shown_max) {
        let leaves = view.cohort.iter().filter(|node| !view.next.is_empty() && !view.next.contains(node));
        table.add_row([
            Cell::new(view.partition),
            Cell::new(survey.phase(view).name()),
            view.leader.map_or_else(|| Cell::new("none").fg(Color::Red), |leader| Cell::new(survey.name(leader))),
            Cell::new(survey.names(&view.cohort)),
            Cell::new(survey.names(comers(view, &view.next))),
            Cell::new(survey.names(leaves.chain(&view.leaving))),
        ]);
    }
    output.table(&mut table)?;
    if views.len() > shown_max {
        output.line(&format!("and {} more", views.len() - shown_max))?;
    }
    Ok(())
}
