// SPDX-License-Identifier: Apache-2.0

package articles

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// row is a row of the page. Why is the number of the reason, from 1, or 0 for what is the same. shown means that
// nothing was compared: the line of the lab shows what the article draws or says.
type row struct {
	article, lab string
	why          int
	shown        bool
}

// compare returns the rows of an exhibit with lines.
func (e *Exhibit) compare(l library) ([]row, error) {
	find := finder(e.Names)
	texts := nonEmpty(e.Lines)
	labTexts, err := l.lines(e.Lab)
	if e.Manifest {
		texts, labTexts, err = e.fields(l)
	}
	if err != nil {
		return nil, err
	}
	var article, lab []line
	for _, t := range texts {
		article = append(article, newLine(t, find))
	}
	for _, t := range labTexts {
		lab = append(lab, newLine(t, find))
	}
	same := pairs(article, lab, e.Unordered)
	why, err := e.reasons(article, lab, same)
	if err != nil {
		return nil, err
	}
	names := newNaming()
	var errs []error
	for i, j := range same {
		if j >= 0 {
			errs = append(errs, names.pair(article[i], lab[j]))
		}
	}
	names.keepEqual(article, lab)
	rows := order(same, len(lab), why)
	for _, at := range rows {
		if at[0] >= 0 && at[1] >= 0 {
			names.guess(article[at[0]], lab[at[1]])
		}
	}
	var out []row
	for _, at := range rows {
		r := row{}
		if at[0] >= 0 {
			r.article, r.why = names.name(article[at[0]], 0), why[0][at[0]]
		}
		if at[1] >= 0 {
			r.lab, r.why = names.name(lab[at[1]], 1), why[1][at[1]]
		}
		out = append(out, r)
	}
	return out, errors.Join(errs...)
}

// reasons returns the number of the reason for each line of the article and of the lab, 0 for those with a partner. It
// fails if a line has neither, and if a reason is that of no line.
func (e *Exhibit) reasons(article, lab []line, same []int) ([2][]int, error) {
	out := [2][]int{make([]int, len(article)), make([]int, len(lab))}
	used := make([]bool, len(e.Why))
	var errs []error
	find := func(side string, text string, pattern func(Reason) string) int {
		for i, why := range e.Why {
			re, err := compile(pattern(why))
			if err != nil {
				errs = append(errs, err)
			} else if pattern(why) != "" && re.MatchString(text) {
				used[i] = true
				return i + 1
			}
		}
		errs = append(errs, fmt.Errorf("%s: no reason for: %s", side, text))
		return 0
	}
	for i, l := range article {
		if same[i] < 0 {
			out[0][i] = find("article", l.raw, func(r Reason) string { return r.Article })
			continue
		}
		for k, r := range e.Why { // lines that are the same, at another place
			if r.Article != "" && r.Lab != "" && matches(r.Article, l.raw) && matches(r.Lab, lab[same[i]].raw) {
				used[k], out[0][i], out[1][same[i]] = true, k+1, k+1
			}
		}
	}
	for j, l := range lab {
		if !slices.Contains(same, j) {
			out[1][j] = find("lab", l.raw, func(r Reason) string { return r.Lab })
		}
	}
	for i, u := range used {
		if !u {
			errs = append(errs, fmt.Errorf("reason %d explains nothing: %s", i+1, e.Why[i].Words["en"]))
		}
	}
	return out, errors.Join(errs...)
}

// matches reports whether a text has what a regular expression of a file finds.
func matches(pattern, text string) bool {
	re, err := compile(pattern)
	return err == nil && re.MatchString(text)
}

// order returns the rows as numbers of lines of both sides, -1 for none. Lines of the same reason stand side by side.
func order(same []int, lab int, why [2][]int) [][2]int {
	var out [][2]int
	var left []int // lines of the article that wait for lines of the lab with the same reason
	next := 0
	flush := func(until int) {
		for ; next < until; next++ {
			if slices.Contains(same, next) {
				continue
			}
			k := slices.IndexFunc(left, func(i int) bool { return why[0][i] == why[1][next] })
			for _, i := range left[:max(k, 0)] {
				out = append(out, [2]int{i, -1})
			}
			both := [2]int{-1, next}
			if k >= 0 {
				both[0], left = left[k], left[k+1:]
			}
			out = append(out, both)
		}
		for _, i := range left {
			out = append(out, [2]int{i, -1})
		}
		left = nil
	}
	for i, j := range same {
		if j < 0 {
			left = append(left, i)
			continue
		}
		flush(max(next, j))
		out = append(out, [2]int{i, j})
	}
	flush(lab)
	return out
}

// find returns the rows of a diagram.
func (e *Exhibit) find(l library) ([]row, []Words, error) {
	var out []row
	var why []Words
	var errs []error
	for _, r := range e.Rows {
		found, err := r.line(l)
		errs = append(errs, err)
		one := row{lab: found, shown: r.Quote == ""}
		switch quote := newLine(r.Quote, finder(nil)); {
		case r.Why != nil:
			one.why = 1 + slices.IndexFunc(why, func(w Words) bool { return maps.Equal(w, r.Why) })
			if one.why == 0 {
				why = append(why, r.Why)
				one.why = len(why)
			}
		case found == "":
			errs = append(errs, fmt.Errorf("%s%s: want a line of the lab, or a reason", r.Quote, r.Is["en"]))
		case !strings.Contains(newLine(found, finder(nil)).masked, quote.masked):
			errs = append(errs, fmt.Errorf("%q is not in the lab's line, and there is no reason: %s", r.Quote, found))
		}
		out = append(out, one)
	}
	return out, why, errors.Join(errs...)
}

// line returns the first line of the lab that a row names.
func (r Row) line(l library) (string, error) {
	if r.At == "" {
		return "", nil
	}
	lesson, step, _ := strings.Cut(r.At, "/")
	lines, err := l.lines([]Source{{Lesson: lesson, Step: step, Keep: r.Line}})
	if err != nil {
		return "", err
	}
	if len(lines) == 0 {
		return "", fmt.Errorf("%s has no line %s", r.At, r.Line)
	}
	return lines[0], nil
}
