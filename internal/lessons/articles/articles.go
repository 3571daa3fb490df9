// SPDX-License-Identifier: Apache-2.0

// Package articles sets the tables, listings and diagrams of the four articles that the lessons follow beside what the
// lessons show, line by line.
//
// N.yaml describes article N. A machine compares: lines that are the same up to names, addresses and counters are
// pairs; every other line of either side needs a reason. Page fails if one has none, and if a reason explains nothing.
package articles

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"go.yaml.in/yaml/v2"

	"github.com/viplab/viplab/internal/lessons"
	"github.com/viplab/viplab/internal/lessons/course"
)

//go:embed *.yaml
var files embed.FS

// Article is one of the articles. All loads them.
type Article struct {
	// Title is the heading, by language.
	Title Words `yaml:"title"`
	// Intro is the text below it.
	Intro    Words     `yaml:"intro"`
	Exhibits []Exhibit `yaml:"exhibits"`
}

// Words is a text by language: en and ko.
type Words map[string]string

// Exhibit is a table, listing, manifest or diagram of an article. It has Lines, which a machine aligns with those of
// Lab, or Rows, of which each says where the lab shows the same.
type Exhibit struct {
	// Title names the exhibit, and Shows says what one sees in it.
	Title Words `yaml:"title"`
	Shows Words `yaml:"shows"`

	// Lines are those of the article. With Manifest they are YAML, and compared field by field.
	Lines    string `yaml:"lines"`
	Manifest bool   `yaml:"manifest"`
	// Unordered means that the order of the lines has no meaning, or that a reason says which.
	Unordered bool `yaml:"unordered"`
	// Names are words that name objects in either side, beside those that always do.
	Names []string `yaml:"names"`
	Lab   []Source `yaml:"lab"`
	// Why explains the lines without a partner.
	Why []Reason `yaml:"why"`

	Rows []Row `yaml:"rows"`
	// Draw are walks, LESSON/STEP, whose chains the page draws.
	Draw []string `yaml:"draw"`

	// Note is a remark on the whole exhibit.
	Note Words `yaml:"note"`
}

// Source is where lines of the lab come from: the recorded output of a step, its commands, or a file of the lesson.
type Source struct {
	Lesson string `yaml:"lesson"`
	Step   string `yaml:"step"`
	// Run means the commands of the step, not their output.
	Run  bool   `yaml:"run"`
	File string `yaml:"file"`
	// Keep and Drop are regular expressions that choose lines. Empty, they choose all and none.
	Keep string `yaml:"keep"`
	Drop string `yaml:"drop"`
}

// Reason says why lines differ. Article and Lab are regular expressions that find the lines. A reason with both also
// explains lines that are the same but at another place.
type Reason struct {
	Article string `yaml:"article"`
	Lab     string `yaml:"lab"`
	Words   `yaml:",inline"`
}

// Row is a box or an arrow of a diagram, or a sentence of a list, and the lines of the lab that show the same.
type Row struct {
	// Quote is what the article prints; it stands in the line of the lab unless there is a reason. Is says what it draws.
	Quote string `yaml:"quote"`
	Is    Words  `yaml:"is"`
	// At is LESSON/STEP, and Line a regular expression that finds the line. Both are empty if the lab has none.
	At   string `yaml:"at"`
	Line string `yaml:"line"`
	Why  Words  `yaml:"why"`
}

// All returns the articles in their order.
func All() ([]*Article, error) {
	entries, err := fs.Glob(files, "*.yaml")
	if err != nil {
		return nil, err
	}
	var out []*Article
	for _, name := range entries {
		text, err := files.ReadFile(name)
		if err != nil {
			return nil, err
		}
		a := &Article{}
		if err := yaml.UnmarshalStrict(text, a); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		out = append(out, a)
	}
	return out, nil
}

// library finds lines of the lessons.
type library map[string]*lessons.Lesson

func newLibrary() (library, error) {
	all, err := course.All()
	if err != nil {
		return nil, err
	}
	l := library{}
	for _, lesson := range all {
		l[lesson.Name] = lesson
	}
	return l, nil
}

// text returns what a source names.
func (l library) text(s Source) (string, error) {
	lesson := l[s.Lesson]
	if lesson == nil {
		return "", fmt.Errorf("there is no lesson %s", s.Lesson)
	}
	if s.File != "" {
		text, err := fs.ReadFile(lesson.Files, s.File)
		return string(text), err
	}
	for _, step := range lesson.Steps {
		if step.ID == s.Step && s.Run {
			return step.Run, nil
		}
		if step.ID == s.Step {
			return step.Output, nil
		}
	}
	return "", fmt.Errorf("lesson %s has no step %q", s.Lesson, s.Step)
}

// lines returns the lines of sources, without empty ones.
func (l library) lines(sources []Source) ([]string, error) {
	var out []string
	var errs []error
	for _, s := range sources {
		text, err := l.text(s)
		keep, keepErr := compile(s.Keep)
		drop, dropErr := compile(s.Drop)
		if err := errors.Join(err, keepErr, dropErr); err != nil {
			errs = append(errs, err)
			continue
		}
		for _, line := range nonEmpty(text) {
			if (s.Keep == "" || keep.MatchString(line)) && (s.Drop == "" || !drop.MatchString(line)) {
				out = append(out, line)
			}
		}
	}
	return out, errors.Join(errs...)
}

// nonEmpty returns the lines of a text that are not empty, with single spaces.
func nonEmpty(text string) []string {
	var out []string
	for _, line := range strings.Split(text, "\n") {
		if words := strings.Fields(line); len(words) > 0 {
			out = append(out, strings.Join(words, " "))
		}
	}
	return out
}
