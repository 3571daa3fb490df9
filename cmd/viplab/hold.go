// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/viplab/viplab/internal/live"
	"github.com/viplab/viplab/internal/live/registry"
	"github.com/viplab/viplab/lab/sandbox"
)

// newHold returns the command that "up" starts: it holds the lab. Its sockets are the descriptors from 3 on.
func newHold() *cobra.Command {
	var f upFlags
	cmd := &cobra.Command{
		Use:    "hold NAME",
		Short:  "Hold a lab (viplab up starts this)",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c := live.Config{Name: args[0]}
			if err := f.set(&c); err != nil {
				return err
			}
			files, err := sandbox.EnterWith(cmd.Context(), inherited)
			if err != nil {
				return err
			}
			if err := json.NewDecoder(cmd.InOrStdin()).Decode(&c.Content); err != nil {
				return fmt.Errorf("read the manifests and images: %w", err)
			}
			sockets, builder := files[:len(files)-1], files[len(files)-1]
			return live.Run(cmd.Context(), live.FromFiles(sockets), builder, c, switched)
		},
	}
	f.add(cmd)
	return cmd
}

// inherited returns the files that "up" has opened, and a socket to what this process builds for the lab. It notes the
// process, which ends the lab with its own end.
func inherited() ([]*os.File, error) {
	files := make([]*os.File, len(live.Sockets{}.Files()))
	for i := range files {
		fd := uintptr(3 + i)
		if _, err := os.Stat(fmt.Sprintf("/proc/self/fd/%d", fd)); errors.Is(err, fs.ErrNotExist) {
			return nil, errors.New("\"viplab up\" starts this command, which has no use by itself")
		}
		files[i] = os.NewFile(fd, "inherited")
	}
	builder, err := live.ServeBuilds()
	if err != nil {
		return nil, err
	}
	pid := fmt.Appendln(nil, os.Getpid())
	return append(files, builder), live.FromFiles(files).WriteFile(registry.Process, pid)
}
