// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// build says what this executable was built from. Its fields are empty where the build recorded nothing, as with
// "go build -buildvcs=false".
type build struct {
	// Version is the module's: a tag, a pseudo-version of the commit, or "(devel)".
	Version string `json:"version"`
	// Commit is the full hash.
	Commit string `json:"commit,omitempty"`
	// Time is the commit's, in the form of RFC 3339.
	Time string `json:"time,omitempty"`
	// Modified says that files differed from the commit.
	Modified bool   `json:"modified"`
	Go       string `json:"go"`
	// Platform is that of the executable: "linux/amd64".
	Platform string `json:"platform"`
}

// thisBuild returns what the toolchain recorded in the executable.
func thisBuild() build {
	b := build{Version: "unknown", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok {
		b.read(info)
	}
	return b
}

func (b *build) read(info *debug.BuildInfo) {
	b.Version = cmp.Or(info.Main.Version, "(devel)") // the tests of a module have none
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.time":
			b.Time = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
}

func (b build) write(w io.Writer) error {
	commit := cmp.Or(b.Commit, "unknown")
	if b.Time != "" {
		commit += " of " + b.Time
	}
	if b.Modified {
		commit += ", with changes"
	}
	_, err := fmt.Fprintf(w, "viplab   %s\ncommit   %s\ngo       %s\nplatform %s\n", b.Version, commit, b.Go, b.Platform)
	return err
}

// version returns the module's version if the executable was built by "go install ...@version", else the commit.
func version() string { return thisBuild().Version }

func newVersion() *cobra.Command {
	var output outputFlag
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Show the version, the commit and the platform of this executable",
		Example: `  viplab version
  viplab version -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := output.check(); err != nil {
				return err
			}
			if output.format != "" {
				return encode(cmd.OutOrStdout(), output.format, thisBuild())
			}
			return thisBuild().write(cmd.OutOrStdout())
		},
	}
	output.add(cmd)
	return cmd
}
