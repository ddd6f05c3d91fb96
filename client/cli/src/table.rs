//! Tables for people, as wide as their terminal.
//!
//! If a table is too wide, it leaves out optional columns, and wraps or cuts words. Ids and numbers stay whole: half of one is useless,
//! and looks like another one.

use super::recent::ID_CHARACTERS;
use super::text::without_formats;
use comfy_table::presets::NOTHING;
use comfy_table::{Attribute, Cell, CellAlignment, ColumnConstraint, Row, Table, Width};
use std::borrow::Cow;

/// Space between columns.
const GAP: u16 = 2;
/// Longest word that is never broken.
const WORD_CHARACTERS: u16 = 12;

/// Table without borders that adapts to the width of the terminal.
#[derive(Debug)]
pub struct Grid {
    titles: Vec<String>,
    numbers: Vec<bool>,
    rows: Vec<Row>,
    color: bool,
    spare: &'static [&'static str],
    sparse: &'static [&'static str],
    one_line: bool,
    /// Column and its wanted width, for which optional columns are left out if necessary.
    wish: Option<(&'static str, u16)>,
    /// Layout of the rows printed so far, which later rows keep.
    layout: Option<Layout>,
}

/// Layout of a printed table.
#[derive(Debug, Clone, Default)]
struct Layout {
    widths: Vec<u16>,
    /// Indexes of hidden columns, in the order in which they were left out.
    hidden: Vec<usize>,
    /// How many of them, the first ones, had nothing to show.
    empty: usize,
}

impl Grid {
    /// Creates an empty table. Columns whose title begins with `#` hold numbers.
    pub(super) fn new(titles: &[&str], color: bool) -> Grid {
        Grid {
            titles: titles.iter().map(|title| title.trim_start_matches('#').to_owned()).collect(),
            numbers: titles.iter().map(|title| title.starts_with('#')).collect(),
            rows: Vec::new(),
            color,
            spare: &[],
            sparse: &[],
            one_line: false,
            wish: None,
            layout: None,
        }
    }

    /// Makes these columns optional: they are left out, the first title first, if there is no room.
    #[must_use]
    pub fn spare(mut self, spare: &'static [&'static str]) -> Grid {
        debug_assert!(spare.iter().all(|title| self.titles.iter().any(|other| other == title)));
        self.spare = spare;
        self
    }

    /// Leaves these columns out without a word if no row has anything in them, of the rows that are printed first.
    #[must_use]
    pub fn sparse(mut self, sparse: &'static [&'static str]) -> Grid {
        debug_assert!(sparse.iter().all(|title| self.titles.iter().any(|other| other == title)));
        self.sparse = sparse;
        self
    }

    /// Leaves out optional columns if a column would get less than this width.
    #[must_use]
    pub fn wish(mut self, title: &'static str, width: u16) -> Grid {
        self.wish = Some((title, width));
        self
    }

    /// Cuts text that does not fit instead of wrapping it.
    #[must_use]
    pub fn one_line(mut self) -> Grid {
        self.one_line = true;
        self
    }

    /// Adds a row. Invisible characters must have been escaped, because a column's width is that of its visible text.
    pub fn add_row(&mut self, row: impl Into<Row>) -> &mut Grid {
        let row = row.into();
        debug_assert!(
            row.cell_iter().all(|cell| matches!(without_formats(&cell.content()), Cow::Borrowed(_))),
            "{row:?}"
        );
        self.rows.push(row);
        self
    }

    /// Returns the number of rows not printed yet.
    pub fn rows(&self) -> usize {
        self.rows.len()
    }

    /// Takes the rows not printed yet, in this width: under the titles, or under the rows printed before.
    pub(super) fn print(&mut self, width: Option<u16>) -> Vec<String> {
        let mut table = self.table();
        let layout = match self.layout.take() {
            Some(layout) => layout,
            None => self.fit(&table, width),
        };
        for (index, column) in layout.widths.iter().enumerate() {
            let Some(place) = table.column_mut(index) else { continue };
            let fixed = Width::Fixed(column.saturating_add(GAP));
            place.set_constraint(match width {
                _ if layout.hidden.contains(&index) => ColumnConstraint::Hidden,
                Some(_) => ColumnConstraint::Absolute(fixed),
                None => ColumnConstraint::LowerBoundary(fixed),
            });
        }
        if self.one_line && width.is_some() {
            table.set_truncation_indicator("…");
            for row in table.row_iter_mut() {
                row.max_height(1);
            }
        }
        self.layout = Some(layout);
        self.rows.clear();
        table.lines().map(|line| without_blanks(&line)).collect()
    }

    /// Returns the titles of the columns that were left out.
    pub(super) fn left_out(&self) -> Vec<&str> {
        let hidden = self.layout.iter().flat_map(|layout| &layout.hidden[layout.empty..]);
        hidden.map(|index| self.titles[*index].as_str()).collect()
    }

    fn table(&self) -> Table {
        let mut table = Table::new();
        table.load_style(NOTHING).force_no_tty();
        if self.color {
            table.enforce_styling();
        }
        if self.layout.is_none() {
            let titles = self.titles.iter().map(|title| Cell::new(title).add_attribute(Attribute::Dim));
            table.set_header(titles.collect::<Vec<_>>());
        }
        table.add_rows(self.rows.iter().cloned());
        for (index, is_number) in self.numbers.iter().enumerate() {
            let Some(column) = table.column_mut(index) else { continue };
            column.set_padding((0, GAP));
            if *is_number {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        table
    }

    fn place(&self, title: &str) -> Option<usize> {
        self.titles.iter().position(|other| other == title)
    }

    /// The sparse columns without anything in them.
    fn empty(&self) -> Vec<usize> {
        let cell = |row: &Row, index: usize| row.cell_iter().nth(index).is_some_and(|cell| !cell.content().is_empty());
        let is_empty = |index: &usize| !self.rows.iter().any(|row| cell(row, *index));
        self.sparse.iter().filter_map(|title| self.place(title)).filter(is_empty).collect()
    }

    fn fit(&self, table: &Table, width: Option<u16>) -> Layout {
        let hidden = self.empty();
        let empty = hidden.len();
        let mut layout = Layout { widths: table.column_max_content_widths(), hidden, empty };
        let room = width.map_or(usize::MAX, usize::from);
        if layout.width() <= room {
            return layout;
        }
        let least = |word_max: u16| {
            let of_column = |index: usize| least(table, index, word_max).min(layout.widths[index]);
            (0..self.titles.len()).map(of_column).collect()
        };
        let mut narrowest = Layout { widths: least(WORD_CHARACTERS), hidden: layout.hidden.clone(), empty };
        let place = |title: &str| self.place(title);
        let wish = self.wish.and_then(|(title, width)| Some((place(title)?, width)));
        let wish = wish.map(|(index, width)| (index, width.min(layout.widths[index])));
        let more = wish.map_or(0, |(index, width)| width.saturating_sub(narrowest.widths[index]));
        for title in self.spare {
            if narrowest.width() + usize::from(more) <= room {
                break;
            }
            narrowest.hidden.extend(place(title).filter(|index| !layout.hidden.contains(index)));
        }
        // With no optional column left, break shorter words as well.
        for word_max in (1..WORD_CHARACTERS).rev() {
            if narrowest.width() <= room {
                break;
            }
            narrowest.widths = least(word_max);
        }
        layout.hidden.clone_from(&narrowest.hidden);
        while layout.width() > room {
            let shrinks =
                |index: &usize| !layout.hidden.contains(index) && layout.widths[*index] > narrowest.widths[*index];
            let wished =
                |index: usize| wish.is_some_and(|(place, width)| place == index && layout.widths[index] <= width);
            let order = |index: &usize| (!wished(*index), layout.widths[*index]);
            let widest = (0..layout.widths.len()).filter(shrinks).max_by_key(order);
            let Some(widest) = widest else { break };
            layout.widths[widest] -= 1;
        }
        layout
    }
}

impl Layout {
    fn width(&self) -> usize {
        let shown = self.widths.iter().enumerate().filter(|(index, _)| !self.hidden.contains(index));
        shown.map(|(_, width)| usize::from(*width) + usize::from(GAP)).sum::<usize>().saturating_sub(usize::from(GAP))
    }
}

/// Returns a line without trailing blanks, which would wrap on a full screen. The blanks may be inside its last style.
fn without_blanks(line: &str) -> String {
    let mut text = line.trim_end();
    let mut styles = Vec::new();
    while let Some((before, style)) = text.rsplit_once('\x1b').filter(|(_, style)| is_style(style)) {
        styles.push(style);
        text = before.trim_end();
    }
    styles.iter().rev().fold(text.to_owned(), |line, style| line + "\x1b" + style)
}

/// Whether this is one whole escape sequence for colour or weight, without its first byte.
fn is_style(text: &str) -> bool {
    let numbers = text.strip_prefix('[').and_then(|text| text.strip_suffix('m'));
    numbers.is_some_and(|numbers| numbers.bytes().all(|byte| byte.is_ascii_digit() || byte == b';'))
}

/// Returns the least width of a column: the width of its longest word that must not be broken. Words longer than `word_max` may be.
fn least(table: &Table, index: usize, word_max: u16) -> u16 {
    let of = |cell: &Cell| cell.content().split_whitespace().map(|word| unbroken(word, word_max)).max().unwrap_or(1);
    table.column_cells_with_header_iter(index).flatten().map(of).max().unwrap_or(1)
}

fn unbroken(word: &str, word_max: u16) -> u16 {
    let characters = u16::try_from(word.chars().count()).unwrap_or(u16::MAX);
    let is_id = usize::from(characters) == ID_CHARACTERS && word.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let is_number = word.bytes().all(|byte| byte.is_ascii_digit());
    if is_id || is_number { characters } else { characters.min(word_max) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "00000001hf2x3y4z00abcdefghjkmnpq";

    fn grid() -> Grid {
        let mut grid = Grid::new(&["ID", "#COUNT", "ZONE", "TEXT"], false).spare(&["ZONE"]);
        grid.add_row([ID, "1234567890123", "here", "some words that go on and on"]);
        grid
    }

    #[test]
    fn a_table_is_as_wide_as_it_is_or_as_its_room() {
        let lines = grid().print(None);
        assert_eq!(lines, grid().print(Some(200)));
        assert_eq!((lines.len(), lines[1].chars().count()), (2, 32 + 2 + 13 + 2 + 4 + 2 + 28));
        for width in 57..90 {
            let mut grid = grid();
            let lines = grid.print(Some(width));
            assert!(lines.iter().all(|line| line.chars().count() <= usize::from(width)), "{width}: {lines:#?}");
            let all = lines.join("\n");
            assert!(all.contains(ID) && all.contains("1234567890123"), "ids and numbers stay whole: {all}");
            assert_eq!(all.contains("here"), grid.left_out().is_empty(), "{width}: {all}");
            assert!(all.contains("words"), "{all}");
        }
    }

    #[test]
    fn a_column_that_is_wished_for_takes_the_room_of_others() {
        let grid = || {
            let mut grid = Grid::new(&["ID", "ZONE", "TEXT", "WHY"], false).spare(&["ZONE", "TEXT"]).one_line();
            grid.add_row([ID, "here", "some words that go on and on", "a reason that goes on and on"]);
            grid
        };
        for (width, wished) in
            [(120, "a reason that goes on and on"), (80, "a reason that goes on"), (60, "a reason that goes")]
        {
            let lines = grid().wish("WHY", 22).print(Some(width));
            assert!(lines.len() == 2 && lines[1].contains(wished), "{width}: {lines:#?}");
            assert!(lines.iter().all(|line| line.chars().count() <= usize::from(width)), "{width}: {lines:#?}");
        }
        assert!(!grid().print(Some(80))[1].contains("a reason that goes on"), "without a wish both are cut alike");
    }

    // O34
    #[test]
    fn a_sparse_column_is_there_if_a_row_has_something_in_it() {
        let grid = |text: &str| {
            let mut grid = Grid::new(&["ID", "NAME", "TEXT"], false).sparse(&["NAME"]).spare(&["NAME"]).one_line();
            grid.add_row([ID, "", "some words that go on and on"]).add_row([ID, text, ""]);
            grid
        };
        for width in [None, Some(70)] {
            let mut empty = grid("");
            let lines = empty.print(width);
            assert!(!lines[0].contains("NAME") && empty.left_out().is_empty(), "{width:?}: {lines:#?}");
            assert!(grid("recon/x").print(width)[2].contains("recon/x"), "{width:?}");
        }
        let mut narrow = grid("recon/x");
        assert!(!narrow.print(Some(40))[0].contains("NAME") && narrow.left_out() == ["NAME"]);
    }

    #[test]
    fn what_has_no_room_is_cut_where_a_row_is_a_line() {
        let mut grid = grid().one_line();
        let lines = grid.print(Some(70));
        assert_eq!(lines.len(), 2, "{lines:#?}");
        assert!(lines[1].ends_with('…') && lines[1].contains("some"), "{lines:#?}");
    }

    #[test]
    fn titles_are_printed_once_and_columns_stay_where_they_are() {
        for width in [None, Some(70)] {
            let mut grid = Grid::new(&["ID", "#COUNT", "TEXT"], false).one_line();
            grid.add_row([ID, "1000", "x"]);
            let first = grid.print(width);
            grid.add_row([ID, "7", "x"]);
            let second = grid.print(width);
            assert_eq!((first.len(), second.len(), grid.rows()), (2, 1, 0));
            assert_eq!(second[0].find('7'), first[0].find("COUNT").map(|place| place + 4), "{first:?} {second:?}");
            assert_eq!(second[0].find('x'), first[1].find('x'));
        }
    }
}
