// SPDX-License-Identifier: Apache-2.0

package articles

import (
	"errors"
	"fmt"
	"strings"

	"github.com/viplab/viplab/internal/lessons"
)

// Languages are those of the page.
var Languages = []string{"en", "ko"}

// File returns the name of the page in a language.
func File(lang string) string {
	if lang == "en" {
		return "articles.md"
	}
	return "articles." + lang + ".md"
}

// printer writes the page in a language.
type printer struct {
	lang    string
	library library
	b       strings.Builder

	exhibits, same, shown, other int
}

// Page returns the page in a language, as Markdown. It fails if a line differs without a reason.
func Page(lang string) (string, error) {
	all, err := All()
	if err != nil {
		return "", err
	}
	l, err := newLibrary()
	if err != nil {
		return "", err
	}
	p := &printer{lang: lang, library: l}
	var errs []error
	for i, a := range all {
		fmt.Fprintf(&p.b, "\n## %d. %s\n\n%s\n", i+1, a.Title[lang], strings.TrimSpace(a.Intro[lang]))
		for j := range a.Exhibits {
			p.exhibits++
			if err := p.exhibit(fmt.Sprintf("%d.%d", i+1, j+1), &a.Exhibits[j]); err != nil {
				errs = append(errs, fmt.Errorf("exhibit %d.%d, %s: %w", i+1, j+1, a.Exhibits[j].Title["en"], err))
			}
		}
	}
	head := fmt.Sprintf(heads[lang], p.exhibits, p.same, p.shown, p.other)
	return head + p.b.String(), errors.Join(errs...)
}

// exhibit writes a section.
func (p *printer) exhibit(number string, e *Exhibit) error {
	var errs []error
	for _, w := range []Words{e.Title, e.Shows, e.Note} {
		errs = append(errs, w.complete())
	}
	rows, err := e.compare(p.library)
	why := make([]Words, len(e.Why))
	for i, r := range e.Why {
		why[i] = r.Words
	}
	if len(e.Rows) > 0 {
		rows, why, err = e.find(p.library)
		for i, r := range e.Rows {
			if rows[i].article = quoted(r.Quote); r.Quote == "" {
				rows[i].article = r.Is[p.lang]
				errs = append(errs, r.Is.complete())
			}
			rows[i].lab = quoted(rows[i].lab)
		}
	} else {
		for i, r := range rows {
			rows[i].article, rows[i].lab = quoted(r.article), quoted(r.lab)
		}
	}
	fmt.Fprintf(&p.b, "\n### %s %s\n\n%s\n", number, e.Title[p.lang], strings.TrimSpace(e.Shows[p.lang]))
	if from := p.from(e); from != "" {
		fmt.Fprintf(&p.b, "\n%s: %s.\n", word[p.lang]["lab"], from)
	}
	p.table(rows)
	for i, w := range why {
		fmt.Fprintf(&p.b, "\n%s. %s\n", letter(i+1), strings.TrimSpace(w[p.lang]))
		errs = append(errs, w.complete())
	}
	picture, drawErr := e.drawing(p.library)
	if picture != "" {
		fmt.Fprintf(&p.b, "\n%s\n\n```\n%s```\n", word[p.lang]["drawn"], picture)
	}
	if e.Note[p.lang] != "" {
		fmt.Fprintf(&p.b, "\n%s\n", strings.TrimSpace(e.Note[p.lang]))
	}
	return errors.Join(append(errs, err, drawErr)...)
}

// complete reports a text that lacks a language.
func (w Words) complete() error {
	for _, lang := range Languages {
		if len(w) > 0 && strings.TrimSpace(w[lang]) == "" {
			return fmt.Errorf("no text in %q: %v", lang, w)
		}
	}
	return nil
}

// table writes the rows.
func (p *printer) table(rows []row) {
	if len(rows) == 0 {
		return
	}
	w := word[p.lang]
	fmt.Fprintf(&p.b, "\n| | %s | %s |\n|---|---|---|\n", w["article"], w["viplab"])
	for _, r := range rows {
		switch {
		case r.why > 0:
			p.other++
		case r.shown:
			p.shown++
		default:
			p.same++
		}
		fmt.Fprintf(&p.b, "| %s | %s | %s |\n", r.sign(), r.article, r.lab)
	}
}

// sign returns what stands before a row: the letter of its reason, → for what the lab shows, or = for the same.
func (r row) sign() string {
	switch {
	case r.why > 0:
		return letter(r.why)
	case r.shown:
		return "→"
	}
	return "="
}

// letter returns the letter of a reason, from 1.
func letter(why int) string { return string(rune('a' + why - 1)) }

// quoted returns a line as code in a cell of a table.
func quoted(text string) string {
	if text == "" {
		return ""
	}
	return "`" + strings.ReplaceAll(text, "|", `\|`) + "`"
}

// from returns where the lines of the lab are from: lessons and commands.
func (p *printer) from(e *Exhibit) string {
	var out []string
	seen := map[string]bool{}
	add := func(lesson, what string) {
		l := p.library[lesson]
		if l == nil || seen[lesson+what] {
			return
		}
		seen[lesson+what] = true
		text := fmt.Sprintf("[%s](%s/%s.md)", l.Text(p.lang).Title, p.lang, lesson)
		if what != "" {
			text += ", `" + what + "`"
		}
		out = append(out, text)
	}
	for _, s := range e.Lab {
		what := s.File
		if what == "" {
			what = p.command(s.Lesson, s.Step)
		}
		add(s.Lesson, what)
	}
	for _, r := range e.Rows {
		if lesson, _, ok := strings.Cut(r.At, "/"); ok {
			add(lesson, "")
		}
	}
	return strings.Join(out, "; ")
}

// command returns what a step runs, if it is one line.
func (p *printer) command(lesson, id string) string {
	if l := p.library[lesson]; l != nil {
		for _, s := range l.Steps {
			if s.ID == id {
				return oneLine(s)
			}
		}
	}
	return ""
}

func oneLine(s *lessons.Step) string {
	first, rest, _ := strings.Cut(strings.TrimSpace(s.Run), "\n")
	if rest != "" {
		first += " ..."
	}
	return first
}
