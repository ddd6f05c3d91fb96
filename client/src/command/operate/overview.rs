//! `cluster status` for people: members, what is wanted, what moves, and what each member has to do with it.

use super::super::output::{Output, Style};
use super::super::text::{clean, number};
use super::super::{Failure, Runner, Transport};
use super::survey::{Phase, Survey, comers};
use super::{rows, set};
use crate::wire::NodeId;
use crate::wire::membership::{Member, MemberState, Share};
use crate::wire::response::{PartitionView, Status};
use comfy_table::{Attribute, Cell, Color};
use std::collections::{BTreeMap, BTreeSet};

/// Most partitions under way that are shown.
const SHOWN_MAX: usize = 20;
/// Lines of what is shown beside members and partitions: seven, two of titles, two blank ones, columns left out, how many more
/// there are, and the cursor's.
const HEAD_LINES: usize = 14;
/// Width of the bar of partitions that are where they shall be.
const BAR_CHARACTERS: usize = 30;
/// Width of a member's bar.
const MEMBER_BAR_CHARACTERS: usize = 20;

/// For each member the most replicas that had to come and go at once, since somebody looks: what its bar is full with.
#[derive(Debug, Default)]
pub struct Peaks(BTreeMap<NodeId, u32>);

impl Peaks {
    /// Of what was to come and go, how much has, if anything was.
    pub(super) fn bar(&mut self, node: NodeId, share: Share) -> String {
        let left = share.come.saturating_add(share.go);
        let peak = self.0.entry(node).or_default();
        // What is done is forgotten, so that the next change begins an empty bar.
        *peak = if left == 0 { 0 } else { left.max(*peak) };
        if left == 0 {
            return String::new();
        }
        let moved = *peak - left;
        let filled = (MEMBER_BAR_CHARACTERS as u64 * u64::from(moved) / u64::from(*peak)) as usize;
        format!("[{:<MEMBER_BAR_CHARACTERS$}] {moved} of {peak}", "#".repeat(filled))
    }
}

/// Looks at the cluster and shows it, with the status of the node that answers. Whoever looks again and again has a screen to
/// be wiped, and bars.
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
    head(output, &survey)?;
    partitions(output, &survey)?;
    let settings = set::overview(&survey.view.settings);
    output.line(&format!("settings    {settings}"))?;
    output.line("")?;
    // What is looked at again and again fits the screen.
    let screen = peaks.as_ref().and_then(|_| output.size()).map(|(_, lines)| usize::from(lines));
    let taken = HEAD_LINES + rows::shown(&survey).count();
    members(output, &survey, peaks)?;
    under_way(output, &survey, screen.map_or(SHOWN_MAX, |lines| lines.saturating_sub(taken).min(SHOWN_MAX)))
}

fn head(output: &mut Output, survey: &Survey) -> Result<(), Failure> {
    let view = &survey.view;
    let name = output.paint(Style::Bold, &clean(&view.name));
    output.line(&format!("cluster     {name} {}", view.cluster))?;
    let present: Vec<&Member> = view.roster.members.values().filter(|member| member.state.is_present()).collect();
    let dead: Vec<NodeId> = present.iter().map(|member| member.node).filter(|node| !survey.is_alive(*node)).collect();
    let nodes = format!("{} of {} alive", present.len() - dead.len(), present.len());
    let nodes = match dead[..] {
        [] => output.paint(Style::Good, &nodes),
        _ => output.paint(Style::Bad, &format!("{nodes}; down: {}", survey.names(&dead))),
    };
    output.line(&format!("members     {nodes}"))?;
    let (leader, voters) = (survey.name(view.leader), survey.names(&view.voters));
    output.line(&format!("root        led by {leader}, voters {voters}, version {}", view.roster.version))
}

fn partitions(output: &mut Output, survey: &Survey) -> Result<(), Failure> {
    let (view, all) = (&survey.view, survey.partitions.len());
    let replicas = number(u64::from(view.replicas), "replica");
    let stale = if view.stale { ", about to be planned anew" } else { "" };
    output.line(&format!("layout      version {}, {replicas} of each partition{stale}", view.layout))?;
    let open = survey.open().min(all as u64) as usize;
    // Of a layout that is about to be planned, nothing is where it shall be, or is not.
    let place = if view.stale { "where the last layout wants them" } else { "where they shall be" };
    let mut states = format!("{} of {all} {place}", all - open);
    if open > 0 {
        states += &format!(", {} moving", view.moving.len());
    }
    let left: Vec<&PartitionView> = survey.partitions.iter().filter(|view| survey.phase(view) == Phase::Left).collect();
    if !left.is_empty() {
        let by: BTreeSet<&NodeId> = left.iter().flat_map(|view| &view.leaving).collect();
        states += &format!(", {} left by nodes that are down ({})", left.len(), survey.names(by));
    }
    if view.unknown > 0 {
        states += &format!(", {} not known to the root", view.unknown);
    }
    let states = output.paint(if survey.is_settled() { Style::Good } else { Style::Busy }, &states);
    let filled = BAR_CHARACTERS * (all - open) / all.max(1);
    let bar = if open == 0 { String::new() } else { format!("  [{:<BAR_CHARACTERS$}]", "#".repeat(filled)) };
    output.line(&format!("partitions  {states}{bar}"))?;
    let led = survey.partitions.iter().filter(|view| view.leader.is_some()).count();
    let style = if led == all { Style::Good } else { Style::Bad };
    let led = output.paint(style, &format!("{led} of {all} with a leader"));
    output.line(&format!("leaders     {led}"))
}

fn members(output: &mut Output, survey: &Survey, mut peaks: Option<&mut Peaks>) -> Result<(), Failure> {
    let (view, leads) = (&survey.view, survey.leads());
    let mut titles = vec![
        "#NUMBER", "NAME", "ADDRESS", "ZONE", "#WEIGHT", "STATE", "ROOT", "#LEADS", "#HOLDS", "#COME", "#GO", "NODE",
    ];
    if peaks.is_some() {
        titles.push("MOVED");
    }
    let mut table = output.new_table(&titles).spare(&["NODE", "WEIGHT", "ZONE", "NUMBER", "ADDRESS"]);
    for (number, member) in rows::shown(survey) {
        let share = view.shares.get(&number).copied().unwrap_or_default();
        let root = match (member.node == view.leader, view.voters.contains(&member.node)) {
            (true, _) => "leads",
            (false, true) => "votes",
            (false, false) => "",
        };
        let mut row = vec![
            Cell::new(number),
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
    output.table(&mut table)
}

fn state(survey: &Survey, member: &Member) -> Cell {
    match (member.state, survey.is_alive(member.node)) {
        (MemberState::Gone, _) => Cell::new(member.state).add_attribute(Attribute::Dim),
        (state, false) => Cell::new(format!("{state}, silent")).fg(Color::Red),
        (MemberState::Up, true) => Cell::new(MemberState::Up).fg(Color::Green),
        (state, true) => Cell::new(state).fg(Color::Yellow),
    }
}

fn under_way(output: &mut Output, survey: &Survey, shown_max: usize) -> Result<(), Failure> {
    let views: Vec<&PartitionView> = survey.partitions.iter().filter(|view| survey.is_under_way(view)).collect();
    if views.is_empty() {
        return Ok(());
    }
    output.line("")?;
    let mut table = output.new_table(&["#PARTITION", "STATE", "LEADER", "NODES", "COMING", "LEAVING"]);
    for view in views.iter().take(shown_max) {
        let leaves = view.cohort.iter().filter(|node| !view.next.is_empty() && !view.next.contains(node));
        table.add_row([
            Cell::new(view.partition),
            Cell::new(rows::phase_name(survey.phase(view))),
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
