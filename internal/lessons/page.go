// SPDX-License-Identifier: Apache-2.0

package lessons

import (
	"fmt"
	"regexp"
	"strings"
)

// words are what pages and sessions say, by language. English stands in for any other.
var words = map[string]map[string]string{
	"en": {
		"hint": "Hint", "solution": "Solution",
		"run": "Run it: `viplab learn %s`. The commands, and what they print, come from a lab that has executed them.",
	},
	"ko": {
		"hint": "힌트", "solution": "풀이",
		"run": "직접 해 보기: `viplab learn %s --lang ko`. 명령과 출력은 실제 랩에서 실행한 결과입니다.",
	},
}

// Word returns what pages and sessions say in a language.
func word(lang, key string) string {
	if w, ok := words[lang][key]; ok {
		return w
	}
	return words["en"][key]
}

// Page returns the lesson as a page of Markdown, with the recorded output of its commands.
func (l *Lesson) Page(lang string) string {
	t := l.Text(lang)
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\n*%s*\n", t.Title, fmt.Sprintf(word(lang, "run"), l.Name))
	for _, p := range t.Parts {
		if p.Markdown != "" {
			fmt.Fprintf(&b, "\n%s\n", p.Markdown)
		}
		if p.Step == nil {
			continue
		}
		for _, h := range p.Hints {
			fmt.Fprintf(&b, "\n<details><summary>%s</summary>\n\n%s\n\n</details>\n", word(lang, "hint"), h)
		}
		command := block(p.Step)
		if p.Step.Exercise {
			command = fmt.Sprintf("<details><summary>%s</summary>\n\n%s\n</details>\n", word(lang, "solution"), command)
		}
		fmt.Fprintf(&b, "\n%s", command)
	}
	return b.String()
}

// block returns a command and its output as a block of code.
func block(s *Step) string {
	lines := strings.Split(strings.TrimSpace(s.Run), "\n")
	text := "$ " + strings.Join(lines, "\n> ") + "\n" + s.Output
	for i, line := range strings.Split(text, "\n") {
		if i == 0 {
			text = strings.TrimRight(line, " ")
			continue
		}
		text += "\n" + strings.TrimRight(line, " ")
	}
	return "```console\n" + strings.TrimRight(text, "\n") + "\n```\n"
}

var (
	bold = regexp.MustCompile(`\*\*([^*]+)\*\*`)
	code = regexp.MustCompile("`([^`]+)`")
	link = regexp.MustCompile(`\[([^\]]+)\]\(([^)]+)\)`)
)

// Terminal returns Markdown as text for a terminal, with colours or without.
func Terminal(markdown string, colour bool) string {
	in := func(sgr, text string) string {
		if !colour {
			return text
		}
		return "\x1b[" + sgr + "m" + text + "\x1b[0m"
	}
	var out []string
	fenced := false
	for _, line := range strings.Split(markdown, "\n") {
		switch {
		case strings.HasPrefix(line, "```"):
			fenced = !fenced
			continue
		case fenced:
			line = "    " + line
		case strings.HasPrefix(line, "#"):
			line = in("1", strings.TrimLeft(line, "# "))
		default:
			line = bold.ReplaceAllStringFunc(line, func(s string) string { return in("1", strings.Trim(s, "*")) })
			line = code.ReplaceAllStringFunc(line, func(s string) string { return in("36", strings.Trim(s, "`")) })
			line = link.ReplaceAllString(line, "$1 ($2)")
		}
		out = append(out, line)
	}
	return strings.Join(out, "\n")
}
