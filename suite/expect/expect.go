// SPDX-License-Identifier: Apache-2.0

// Package expect reads the lists of programs' known deviations. A scenario that fails as expected is known instead of
// failed, and one that passes although a failure is expected is an error. So a list that is out of date makes the run
// fail.
//
// A file has this form:
//
//	proxier: my-proxy
//	expect:
//	- scenario: ct-udp-service-deleted       # its id
//	  modes: [iptables]                      # default: all
//	  versions: ">=1.32 <1.38"               # default: all
//	  families: [4]                          # default: all
//	  rows: ["the-service-is-deleted/*"]     # default: the scenario as a whole
//	  with: {pods: bridge}                   # default: in every cluster
//	  got: Reply                             # default: any failure
//	  issue: https://github.com/kubernetes/kubernetes/issues/141275
//	  reason: flows of deleted Services are not flushed
package expect

import (
	"bytes"
	"cmp"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/Masterminds/semver/v3"
	"go.yaml.in/yaml/v2"

	"github.com/viplab/viplab/lab"
)

// File is a file of expectations.
type File struct {
	// Proxier is the name of the program, without its mode: "kube-proxy".
	Proxier string  `yaml:"proxier"`
	Expect  []Entry `yaml:"expect"`

	name string
}

// Entry is one expectation: a scenario, or some of its rows, that fail for a known reason.
type Entry struct {
	Scenario string `yaml:"scenario"`
	// Modes are those of the program to which the entry applies. None means all.
	Modes []string `yaml:"modes,omitempty,flow"`
	// Versions is a range of releases, as in ">=1.32 <1.37". Empty means all. A program of unknown version matches only
	// the empty range.
	Versions string `yaml:"versions,omitempty"`
	// Families are 4 and 6. None means both. The entry does not apply to clusters without any of them.
	Families []int `yaml:"families,omitempty,flow"`
	// Rows are patterns of the labels of rows (spec.Probed.Row); * stands for any text. Each row that matches must
	// fail, and every other row must hold. None means the scenario as a whole, whatever fails in it.
	Rows []string `yaml:"rows,omitempty,flow"`
	// With limits the entry to runs with these settings: ip, pods and overlay, each with a word of its flag, and
	// detect-local-mode of kube-proxy.
	With map[string]string `yaml:"with,omitempty,flow"`
	// Got is the known outcome: Reply, Refused, Unreachable, Reset, Silence, or NotReady for a program that does not
	// converge. Empty means any failure but NotReady.
	Got string `yaml:"got,omitempty"`
	// Issue is the URL of the program's issue, or "none" if none has been filed.
	Issue string `yaml:"issue"`
	// Reason is the cause in a few words.
	Reason string `yaml:"reason"`
	// Fixed is the first release without the deviation. It is informative: Versions decides.
	Fixed string `yaml:"fixed,omitempty"`
	// Flaky allows the scenario or row to pass as well. Such an entry needs an issue.
	Flaky bool `yaml:"flaky,omitempty"`
}

// Generated stands for all generated cases (viplab conform --random). An entry for them has rows, whose labels begin
// with a rule of the oracle. Its rows may hold as well, because a case may need more than its rule to fail.
const Generated = "random-*"

// MayHold reports whether the scenario or row may hold as well.
func (e Entry) MayHold() bool { return e.Flaky || e.Scenario == Generated }

// NotReady is the outcome of a program that does not converge.
const NotReady = "NotReady"

// todo stands where a person has to write something.
const todo = "TODO"

var outcomes = []string{"Reply", "Refused", "Unreachable", "Reset", "Silence", NotReady}

//go:embed known/*.yaml
var shipped embed.FS

// Shipped returns the expectations that come with viplab for a program, or nil if there are none.
func Shipped(proxier string) (*File, error) {
	name := "known/" + proxier + ".yaml"
	data, err := shipped.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return Parse("suite/expect/"+name, data)
}

// Parse reads a file. Errors contain the name. The error lists every malformed entry: an unknown field, a missing issue
// or reason, or an invalid range of versions.
func Parse(name string, data []byte) (*File, error) { return parseFile(name, data, false) }

// ParseDraft is Parse, but it accepts the placeholders of Encode.
func ParseDraft(name string, data []byte) (*File, error) { return parseFile(name, data, true) }

func parseFile(name string, data []byte, draft bool) (*File, error) {
	f := &File{name: name}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	decoder.SetStrict(true)
	if err := decoder.Decode(f); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if err := decoder.Decode(&File{}); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: it holds more than one document", name)
	}
	var errs []error
	if f.Proxier == "" {
		errs = append(errs, fmt.Errorf("%s: it does not name its proxier", name))
	}
	for i, e := range f.Expect {
		for _, problem := range e.problems(draft) {
			errs = append(errs, fmt.Errorf("%s: entry %d (%s): %s", name, i+1, e.Scenario, problem))
		}
	}
	return f, errors.Join(errs...)
}

func (e Entry) problems(draft bool) []string {
	var out []string
	if e.Scenario == "" {
		out = append(out, "it names no scenario")
	}
	unexplained := func(s string) bool { return s == "" || s == todo && !draft }
	if unexplained(e.Issue) || unexplained(e.Reason) {
		out = append(out, `it needs a reason, and an issue or "issue: none"`)
	}
	if e.Scenario == Generated && len(e.Rows) == 0 {
		out = append(out, "an entry for generated cases needs rows")
	}
	if e.Flaky && e.Issue == "none" {
		out = append(out, "what is flaky needs an issue")
	}
	if e.Got != "" && !slices.Contains(outcomes, e.Got) {
		out = append(out, fmt.Sprintf("got %q: want one of %s", e.Got, strings.Join(outcomes, ", ")))
	}
	if _, err := semver.NewConstraint(e.Versions); e.Versions != "" && err != nil {
		out = append(out, fmt.Sprintf("versions %q: %v", e.Versions, err))
	}
	for _, f := range e.Families {
		if f != 4 && f != 6 {
			out = append(out, fmt.Sprintf("family %d: want 4 or 6", f))
		}
	}
	for name, check := range clusterSettings {
		if value, given := e.With[name]; given && check(value) != nil {
			out = append(out, fmt.Sprintf("with %s: %v", name, check(value)))
		}
	}
	return out
}

// clusterSettings check the words for the settings of clusters.
var clusterSettings = map[string]func(string) error{
	"ip":      func(word string) error { _, err := lab.ParseStack(word); return err },
	"pods":    func(word string) error { _, err := lab.ParsePodNetwork(word); return err },
	"overlay": func(word string) error { _, err := lab.ParseOverlay(word); return err },
}

// Run describes a run of a program. It determines which expectations apply.
type Run struct {
	// Mode is the program's mode, empty if it has none. Modes are all that the program has.
	Mode  string
	Modes []string
	// Version is its release, as in "v1.36.3". Empty means unknown.
	Version string
	// With are the settings of the run, by the names that Entry.With has for them.
	With map[string]string
}

// For returns the expectations for a run. The error lists each entry that can never apply, because its scenario is not
// among ids, or the program has no such mode or setting, and each pair of entries that apply to the same row.
func (f *File) For(r Run, ids []string) (*Known, error) {
	if f == nil {
		return nil, nil
	}
	k := &Known{file: f.name}
	var errs []error
	for _, e := range f.Expect {
		if e.Scenario != Generated && !slices.Contains(ids, e.Scenario) {
			errs = append(errs, fmt.Errorf("%s: there is no scenario %q: remove the entry", f.name, e.Scenario))
		}
		for _, problem := range r.never(e) {
			errs = append(errs, fmt.Errorf("%s: %s: %s", f.name, e.Scenario, problem))
		}
		if !e.Applies(r) {
			continue
		}
		if slices.ContainsFunc(k.entries, func(o Entry) bool { return overlap(e, o) }) {
			errs = append(errs, fmt.Errorf("%s: two entries apply to %s: narrow one", f.name, e.Scenario))
		}
		k.entries = append(k.entries, e)
	}
	return k, errors.Join(errs...)
}

// never returns the reasons why an entry applies to no run of the program.
func (r Run) never(e Entry) []string {
	var out []string
	for _, m := range e.Modes {
		if !slices.Contains(r.Modes, m) {
			out = append(out, fmt.Sprintf("there is no mode %q (modes: %s)", m, listed(r.Modes)))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(e.With)) {
		if _, there := r.With[name]; !there {
			out = append(out, fmt.Sprintf("there is no setting %q (settings: %s)", name,
				listed(slices.Sorted(maps.Keys(r.With)))))
		}
	}
	return out
}

func listed(words []string) string { return cmp.Or(strings.Join(words, ", "), "none") }

// has reports whether the clusters of the run have the family 4 or 6.
func (r Run) has(family int) bool {
	ip := r.With["ip"]
	return ip == "" || ip == lab.Dual.String() || ip == strconv.Itoa(family)
}

// Applies reports whether the entry is about a run: its mode, version, families and settings.
func (e Entry) Applies(r Run) bool {
	if len(e.Modes) > 0 && !slices.Contains(e.Modes, r.Mode) ||
		len(e.Families) > 0 && !slices.ContainsFunc(e.Families, r.has) {
		return false
	}
	for name, value := range e.With {
		if r.With[name] != value {
			return false
		}
	}
	if e.Versions == "" {
		return true
	}
	in, err := semver.NewConstraint(e.Versions)
	version, unknown := semver.NewVersion(r.Version)
	return err == nil && unknown == nil && in.Check(version)
}

// overlap reports whether both entries concern one row of one scenario.
func overlap(a, b Entry) bool {
	if a.Scenario != b.Scenario || len(a.Families) > 0 && len(b.Families) > 0 &&
		!slices.ContainsFunc(a.Families, func(f int) bool { return slices.Contains(b.Families, f) }) {
		return false
	}
	return len(a.Rows) == 0 || len(b.Rows) == 0 ||
		slices.ContainsFunc(a.Rows, func(r string) bool { return slices.Contains(b.Rows, r) })
}

// Known holds the expectations for one run of a program. A nil *Known holds none.
type Known struct {
	file    string
	entries []Entry
}

// Of returns the expectations of a scenario.
func (k *Known) Of(scenario string) []Entry {
	if k == nil {
		return nil
	}
	generated := glob(Generated).MatchString(scenario)
	return slices.DeleteFunc(slices.Clone(k.entries), func(e Entry) bool {
		return e.Scenario != scenario && (e.Scenario != Generated || !generated)
	})
}

// ForWholeScenario reports whether the entry applies to the scenario as a whole, not to rows.
func (e Entry) ForWholeScenario() bool { return len(e.Rows) == 0 }

// Concerns reports whether the entry applies to the row with the label in a family.
func (e Entry) Concerns(label string, f lab.Family) bool {
	family := map[lab.Family]int{lab.V4: 4, lab.V6: 6}[f]
	return (len(e.Families) == 0 || slices.Contains(e.Families, family)) &&
		slices.ContainsFunc(e.Rows, func(pattern string) bool { return Matches(pattern, label) })
}

// Matches reports whether a row has a label like the pattern of an entry.
func Matches(pattern, label string) bool { return glob(pattern).MatchString(label) }

// Expects reports whether the entry expects all of these unwanted outcomes. A failure without any, such as that of a
// listing, is expected only by an entry that names none.
func (e Entry) Expects(outcomes ...string) bool {
	if e.Got == "" {
		return !slices.Contains(outcomes, NotReady)
	}
	return len(outcomes) > 0 && !slices.ContainsFunc(outcomes, func(o string) bool { return o != e.Got })
}

// glob compiles a pattern in which * stands for any text.
func glob(pattern string) *regexp.Regexp {
	return regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(pattern), `\*`, ".*") + "$")
}

// String names the issue and the reason.
func (e Entry) String() string {
	if e.Issue == "none" {
		return e.Reason + " (no issue is filed)"
	}
	return e.Reason + " (" + e.Issue + ")"
}

// Encode returns a file of entries for a program in the form that Parse reads. An entry without an issue gets
// placeholders for its issue and reason.
func Encode(proxier string, entries []Entry) ([]byte, error) {
	for i := range entries {
		if entries[i].Issue == "" {
			entries[i].Issue, entries[i].Reason = todo, todo
		}
	}
	return yaml.Marshal(File{Proxier: proxier, Expect: entries})
}
