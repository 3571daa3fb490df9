// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/viplab/viplab/suite/spec"
)

// featureEntry is a feature as "viplab features" shows it.
type featureEntry struct {
	Name    spec.Feature `json:"name"`
	Kind    spec.Kind    `json:"kind"`
	Meaning string       `json:"meaning"`
	// Authority is the page that leaves an option to implementations.
	Authority string `json:"authority,omitempty"`
	// Default says that a command of --exec is taken to have it.
	Default bool `json:"default"`
}

func newFeatures() *cobra.Command {
	var output outputFlag
	cmd := &cobra.Command{
		Use:   "features",
		Short: "List the features that a proxier may have and scenarios may need",
		Long: `features lists what --features of conform can name:

  promise    what the Service API promises: without it, scenarios count as not implemented
  option     what an authority leaves to implementations: offered or not
  mechanism  how a proxier works: scenarios about it do not apply to others

A command of --exec is taken to have those with a *; --features +NAME,-NAME corrects that.`,
		Example: `  viplab features
  viplab features -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := output.check(); err != nil {
				return err
			}
			if output.format != "" {
				return encode(cmd.OutOrStdout(), output.format, featureEntries())
			}
			return writeFeatures(cmd.OutOrStdout(), featureEntries())
		},
	}
	output.add(cmd)
	return cmd
}

// featureEntries returns all features: promises, options and then mechanisms.
func featureEntries() (all []featureEntry) {
	meanings, defaults := spec.Meanings(), spec.DefaultFeatures()
	for _, kind := range []spec.Kind{spec.Promise, spec.Option, spec.Mechanism} {
		for _, f := range spec.AllFeatures() {
			if f.Kind() == kind {
				all = append(all, featureEntry{f, kind, meanings[f], f.Authority(), defaults[f]})
			}
		}
	}
	return all
}

func writeFeatures(w io.Writer, all []featureEntry) error {
	var b strings.Builder
	width := len(slices.MaxFunc(all, func(a, b featureEntry) int { return len(a.Name) - len(b.Name) }).Name)
	for _, f := range all {
		mark := " "
		if f.Default {
			mark = "*"
		}
		fmt.Fprintf(&b, "%s %-*s  %-9s  %s\n", mark, width, f.Name, f.Kind, strings.TrimSuffix(f.Meaning, "."))
		if f.Authority != "" {
			fmt.Fprintf(&b, "  %*s  %s\n", width+11, "", f.Authority)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
