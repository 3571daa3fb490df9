// SPDX-License-Identifier: Apache-2.0

package lessons

import (
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strings"
)

// Text is a lesson's text in one language: Markdown between the steps.
type Text struct {
	// Title is the first heading.
	Title string
	// Parts are the pieces of text, each with the step behind it.
	Parts []Part
}

// Part is a piece of Markdown and the step that follows it. The last part of a text has no step.
type Part struct {
	Markdown string
	Step     *Step
	// Hints help to find the command, one after the other.
	Hints []string
}

// directive is a line that stands for a step, or a paragraph that is a hint for the step before it.
var directive = regexp.MustCompile(`^\{\{(step|hint) +([^ }]+)\}\}(.*)$`)

// readText reads the text of a language. Every step stands in it once, in the order of the lesson.yaml.
func (l *Lesson) readText(source, file, lang string) error {
	content, err := fs.ReadFile(l.Files, file)
	if err != nil {
		return err
	}
	t := &Text{}
	var errs []error
	wrong := func(line int, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s:%d: %s", source, line+1, fmt.Sprintf(format, args...)))
	}
	var text []string
	flush := func() string {
		out := strings.Trim(strings.Join(text, "\n"), "\n")
		text = nil
		return out
	}
	steps := 0
	hinting := false // the lines that follow belong to a hint
	for i, line := range strings.Split(string(content), "\n") {
		if t.Title == "" && strings.HasPrefix(line, "# ") {
			t.Title = strings.TrimSpace(line[2:])
			continue
		}
		found := directive.FindStringSubmatch(line)
		switch {
		case found == nil && strings.HasPrefix(line, "{{"):
			wrong(i, "want {{step ID}} alone in its line, or {{hint ID}} and a sentence")
		case found == nil && hinting && strings.TrimSpace(line) != "":
			hints := t.Parts[len(t.Parts)-1].Hints
			hints[len(hints)-1] += "\n" + line
		case found == nil:
			hinting = false
			text = append(text, line)
		case l.step(found[2]) == nil:
			wrong(i, "%s has no step %q", Manifest, found[2])
		case found[1] == "hint":
			last := len(t.Parts) - 1
			if last < 0 || t.Parts[last].Step.ID != found[2] || strings.TrimSpace(strings.Join(text, "")) != "" {
				wrong(i, "a hint stands right behind its step: want {{step %s}} before it", found[2])
				continue
			}
			hinting = true
			t.Parts[last].Hints = append(t.Parts[last].Hints, strings.TrimSpace(found[3]))
		case steps >= len(l.Steps) || l.Steps[steps].ID != found[2]:
			wrong(i, "step %q does not come here in %s: the texts have every step once, in the same order", found[2],
				Manifest)
			steps++
		default:
			t.Parts = append(t.Parts, Part{Markdown: flush(), Step: l.Steps[steps]})
			steps++
		}
	}
	t.Parts = append(t.Parts, Part{Markdown: flush()})
	switch {
	case t.Title == "":
		wrong(0, "there is no title: want a line \"# ...\"")
	case len(errs) == 0 && steps < len(l.Steps):
		wrong(strings.Count(string(content), "\n"), "step %q is missing: want {{step %s}}", l.Steps[steps].ID,
			l.Steps[steps].ID)
	}
	l.Texts[lang] = t
	return errors.Join(errs...)
}
