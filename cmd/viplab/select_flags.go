// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/viplab/viplab/internal/guess"
	"github.com/viplab/viplab/scenarios"
	"github.com/viplab/viplab/scenarios/catalogue"
	"github.com/viplab/viplab/suite/spec"
)

// selectFlags select scenarios.
type selectFlags struct {
	focus, skip        string
	groups, priorities []string
}

// add adds the flags, except --focus and --skip, whose meaning differs between commands.
func (f *selectFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringSliceVar(&f.groups, "group", nil, "only scenarios of these groups (viplab scenario list shows them)")
	flags.StringSliceVar(&f.priorities, "priority", nil, "only scenarios of these priorities: P0 (first), P1, P2")
	complete(cmd, "priority", priorityNames...)
	_ = cmd.RegisterFlagCompletionFunc("group", // fails for an unknown flag
		func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
			names, _ := groupNames() // what cannot be read is not offered
			return names, cobra.ShellCompDirectiveNoFileComp
		})
}

var priorityNames = []string{string(spec.P0), string(spec.P1), string(spec.P2)}

func groupNames() ([]string, error) {
	groups, err := catalogue.Groups()
	return each(groups, func(g catalogue.Group) string { return g.Name }), err
}

// given reports whether one of the flags selects anything.
func (f *selectFlags) given() bool {
	return f.focus != "" || f.skip != "" || len(f.groups)+len(f.priorities) > 0
}

// check reports every mistake at once.
func (f *selectFlags) check() error {
	var errs []error
	_, err := f.skips()
	errs = append(errs, err)
	for i, p := range f.priorities {
		f.priorities[i] = strings.ToUpper(p)
		errs = append(errs, inFlag("priority", known("priority", f.priorities[i], priorityNames)))
	}
	if len(f.groups) > 0 {
		names, err := groupNames()
		errs = append(errs, err)
		for _, g := range f.groups {
			errs = append(errs, inFlag("group", known("group", g, names)))
		}
	}
	return errors.Join(errs...)
}

// skips returns why a scenario is not to run, for engine.Options.
func (f *selectFlags) skips() (func(spec.Scenario) string, error) {
	r, err := matching("skip", f.skip)
	if r == nil || err != nil {
		return nil, err
	}
	reason := "left out by --skip " + f.skip
	return func(s spec.Scenario) string {
		if r.MatchString(s.ID) {
			return reason
		}
		return ""
	}, nil
}

// matching returns the scenarios of the groups and priorities whose ids match focus. Nil matches all.
func (f *selectFlags) matching(focus *regexp.Regexp) ([]spec.Scenario, error) {
	all, err := matchingScenarios(focus)
	return slices.DeleteFunc(all, func(s spec.Scenario) bool {
		return len(f.groups) > 0 && !slices.Contains(f.groups, s.Group) ||
			len(f.priorities) > 0 && !slices.Contains(f.priorities, string(s.Priority))
	}), err
}

// matchingScenarios returns the scenarios whose ids match focus, or all if focus is nil.
func matchingScenarios(focus *regexp.Regexp) ([]spec.Scenario, error) {
	if focus == nil {
		return scenarios.All()
	}
	matching, err := scenarios.Matching(focus.MatchString)
	if err == nil && len(matching) == 0 {
		return scenarios.All() // a scenario without a row matches no row: All reports it
	}
	return matching, err
}

// known returns an error for a name that is not among those of its kind. The error guesses what was meant.
func known(kind, name string, names []string) error {
	if slices.Contains(names, name) {
		return nil
	}
	meant := ""
	if best := guess.Closest(name, names); best != "" {
		meant = fmt.Sprintf(", did you mean %q?", best)
	}
	return fmt.Errorf("unknown %s %q%s (there are %s)", kind, name, meant, strings.Join(names, ", "))
}
