// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// outputFlag chooses a form for programs. Empty means text for people.
type outputFlag struct{ format string }

func (f *outputFlag) add(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&f.format, "output", "o", "", "json or yaml (default: text)")
	complete(cmd, "output", "json", "yaml")
}

// check returns an error for a form that does not exist.
func (f *outputFlag) check() error {
	switch f.format {
	case "", "json", "yaml":
		return nil
	}
	return fmt.Errorf("--output: %q: want json or yaml", f.format)
}

// encode writes a value as JSON or YAML, with the names of its JSON form.
func encode(w io.Writer, format string, v any) error {
	marshal := yaml.Marshal
	if format == "json" {
		marshal = func(v any) ([]byte, error) { return json.MarshalIndent(v, "", "    ") }
	}
	text, err := marshal(v)
	if err == nil {
		_, err = fmt.Fprintln(w, strings.TrimSuffix(string(text), "\n"))
	}
	return err
}
