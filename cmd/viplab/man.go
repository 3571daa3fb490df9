// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// newMan returns a hidden command that writes the manual pages of all commands into a folder that exists. The variable
// SOURCE_DATE_EPOCH sets their date.
func newMan() *cobra.Command {
	return &cobra.Command{
		Use:    "man DIR",
		Short:  "Write the manual pages of all commands into a folder",
		Args:   cobra.ExactArgs(1),
		Hidden: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			return doc.GenManTree(cmd.Root(), &doc.GenManHeader{Source: "viplab", Manual: "viplab"}, args[0])
		},
	}
}
