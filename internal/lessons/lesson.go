// SPDX-License-Identifier: Apache-2.0

// Package lessons reads lessons: pages whose commands run in a lab.
//
// A lesson is a folder. Its lesson.yaml says how the lab looks and which commands are typed. Its output folder holds
// what they printed when they were recorded. Each LANGUAGE.md, such as en.md, is the text around them. So all languages
// have the same commands and the same output. docs/lessons/writing.md describes the format.
package lessons

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v2"

	"github.com/viplab/viplab/internal/lab/kernel"
	"github.com/viplab/viplab/internal/live"
)

// Manifest is the file of a lesson that describes its lab and its steps.
const Manifest = "lesson.yaml"

// outputs is the folder of what the commands printed.
const outputs = "output"

// Lesson is a lesson. Load makes one.
type Lesson struct {
	// Name is the name of the folder, such as 02-services.
	Name string
	// Files are those of the folder.
	Files fs.FS
	// Folder is where the files are on this machine. It is empty for a lesson that comes with viplab.
	Folder string
	// Lab describes the lab, as a lab.yaml does.
	Lab live.File
	// Needs are the features of the machine without which the lesson cannot run, in the words of viplab doctor.
	Needs []kernel.Feature
	Steps []*Step
	// Texts are those around the steps, by language: en, ko.
	Texts map[string]*Text

	ports map[string]bool // those that the lesson's files name
}

// Step is a command of a lesson.
type Step struct {
	// ID names the step in the texts.
	ID string `yaml:"id"`
	// Run is what a learner types in a shell: one line, or more.
	Run string `yaml:"run"`
	// Exercise means that the learner has to find the command. Run is one that solves it.
	Exercise bool `yaml:"exercise"`
	// Check are conditions that must hold when the step is done.
	Check []Check `yaml:"check"`
	// Mask names parts of the output that differ from run to run: counters, or a regular expression.
	Mask []string `yaml:"mask"`
	// Unordered means that the lines of the output come in any order.
	Unordered bool `yaml:"unordered"`

	// Output is what the command printed when it was recorded; Recorded is false if it never was.
	Output   string `yaml:"-"`
	Recorded bool   `yaml:"-"`

	masks []mask
}

// Check is a command, such as a probe, whose output must contain a text.
type Check struct {
	Run  string `yaml:"run"`
	Want string `yaml:"want"`
}

// file is a lesson.yaml.
type file struct {
	Lab   live.File        `yaml:"lab"`
	Needs []kernel.Feature `yaml:"needs"`
	Mask  []string         `yaml:"mask"`
	Steps []*Step          `yaml:"steps"`
}

var (
	lessonName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,22}[a-z0-9])?$`) // part of the name of a lab
	stepID     = regexp.MustCompile(`^[a-z0-9-]+$`)
	language   = regexp.MustCompile(`^([a-z]{2})\.md$`)
	// inGo is what the decoder says of the Go type that it decodes into.
	inGo = regexp.MustCompile(` (in|into) (type )?(struct )?(lessons|live)\.\S+$`)
)

// Load reads the lesson in a folder. name is the name of the folder; errors name files by it.
func Load(files fs.FS, name string) (*Lesson, error) {
	l := &Lesson{Name: path.Base(name), Files: files, Texts: map[string]*Text{}, ports: map[string]bool{}}
	if !lessonName.MatchString(l.Name) {
		return nil, fmt.Errorf("%s: the folder's name becomes that of a lab: want up to 24 lower case letters, digits and "+
			"dashes", name)
	}
	text, err := fs.ReadFile(files, Manifest)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: there is no %s, so it is no lesson: see docs/lessons/writing.md", name, Manifest)
	}
	if err != nil {
		return nil, err
	}
	if err := l.decode(path.Join(name, Manifest), text); err != nil {
		return nil, err
	}
	errs := []error{l.readOutputs()}
	entries, err := fs.ReadDir(files, ".")
	errs = append(errs, err)
	for _, e := range entries {
		if found := language.FindStringSubmatch(e.Name()); found != nil {
			errs = append(errs, l.readText(path.Join(name, e.Name()), e.Name(), found[1]))
		}
	}
	if len(l.Texts) == 0 {
		errs = append(errs, fmt.Errorf("%s: there is no text: want en.md, ko.md or that of another language", name))
	}
	return l, errors.Join(errs...)
}

// number finds what may be a port.
var number = regexp.MustCompile(`\b[0-9]{4,5}\b`)

// decode reads the lesson.yaml.
func (l *Lesson) decode(source string, text []byte) error {
	var f file
	err := yaml.UnmarshalStrict(text, &f)
	if wrong := (*yaml.TypeError)(nil); errors.As(err, &wrong) {
		var errs []error
		for _, e := range wrong.Errors {
			errs = append(errs, fmt.Errorf("%s: %s", source, inGo.ReplaceAllString(e, "")))
		}
		return fmt.Errorf("%w\n(a lesson has: lab, needs, mask, steps; a step: id, run, exercise, check, mask, unordered; "+
			"lab has the fields of a lab.yaml; see docs/lessons/writing.md)", errors.Join(errs...))
	}
	if err != nil {
		return fmt.Errorf("%s: %s", source, strings.TrimPrefix(err.Error(), "yaml: "))
	}
	l.Lab, l.Needs, l.Steps = f.Lab, f.Needs, f.Steps
	for _, p := range number.FindAllString(string(text), -1) {
		l.ports[p] = true
	}
	errs := []error{l.checkSteps(source, string(text), f.Mask)}
	if _, err := kernel.Named(f.Needs...); err != nil {
		errs = append(errs, fmt.Errorf("%s: needs: %w (see viplab doctor)", source, err))
	}
	for _, m := range f.Lab.Manifests {
		manifest, err := fs.ReadFile(l.Files, m)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: lab.manifests: %w", source, err))
		}
		for _, p := range number.FindAllString(string(manifest), -1) {
			l.ports[p] = true
		}
	}
	return errors.Join(errs...)
}

// checkSteps checks what the decoder cannot, and compiles the masks.
func (l *Lesson) checkSteps(source, text string, masks []string) error {
	var errs []error
	if len(l.Steps) == 0 {
		errs = append(errs, fmt.Errorf("%s: there are no steps: want a list of id and run", source))
	}
	seen := map[string]bool{}
	for i, s := range l.Steps {
		wrong := func(format string, args ...any) {
			at := fmt.Sprintf("%s:%d: step %d", source, lineOf(text, s, i), i+1)
			errs = append(errs, fmt.Errorf("%s: %s", at, fmt.Sprintf(format, args...)))
		}
		switch {
		case s == nil || strings.TrimSpace(s.Run) == "":
			wrong("want run, the command that is typed")
			continue
		case !stepID.MatchString(s.ID):
			wrong("id %q: want lower case letters, digits and dashes", s.ID)
		case seen[s.ID]:
			wrong("id %q names an earlier step: choose another one", s.ID)
		case s.Exercise && len(s.Check) == 0:
			wrong("an exercise wants a check: a command and the text that its output contains when it is solved")
		}
		for _, c := range s.Check {
			if c.Run == "" || c.Want == "" {
				wrong("check: want run, a command, and want, the text that its output contains")
			}
		}
		seen[s.ID] = true
		var err error
		if s.masks, err = compileMasks(slices.Concat(masks, s.Mask)); err != nil {
			wrong("%v", err)
		}
	}
	return errors.Join(errs...)
}

// lineOf returns the line of the i-th step: that of its id, or of the i-th list item that starts a step.
func lineOf(text string, s *Step, i int) int {
	pattern := regexp.MustCompile(`(?m)^\s*-\s+(id|run|exercise|check|mask|unordered):`)
	if s != nil && s.ID != "" {
		pattern, i = regexp.MustCompile(`(?m)^[\s-]*id:\s*["']?`+regexp.QuoteMeta(s.ID)+`["']?\s*$`), 0
	}
	found := pattern.FindAllStringIndex(text, i+1)
	if len(found) <= i {
		return 1
	}
	start := text[:found[i][0]]
	blank := text[found[i][0]:found[i][1]]
	return strings.Count(start, "\n") + strings.Count(blank, "\n") + 1
}

// readOutputs reads what the commands printed.
func (l *Lesson) readOutputs() error {
	var errs []error
	for _, s := range l.Steps {
		text, err := fs.ReadFile(l.Files, OutputFile(s))
		switch {
		case err == nil:
			s.Output, s.Recorded = string(text), true
		case !errors.Is(err, fs.ErrNotExist):
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// OutputFile returns the path of a step's recorded output in the folder of its lesson.
func OutputFile(s *Step) string { return path.Join(outputs, s.ID+".txt") }

// Languages returns the languages of the lesson's texts, sorted.
func (l *Lesson) Languages() []string {
	var out []string
	for name := range l.Texts {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// Text returns the text in a language, or else in English, or else in any.
func (l *Lesson) Text(lang string) *Text {
	for _, name := range append([]string{lang, "en"}, l.Languages()...) {
		if t := l.Texts[name]; t != nil {
			return t
		}
	}
	return &Text{}
}

func (l *Lesson) step(id string) *Step {
	for _, s := range l.Steps {
		if s.ID == id {
			return s
		}
	}
	return nil
}
