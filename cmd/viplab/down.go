// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/viplab/viplab/internal/live"
	"github.com/viplab/viplab/internal/live/registry"
	"github.com/viplab/viplab/internal/machine"
)

func newDown() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "down [NAME...]",
		Short: "End labs, and wait until nothing is left of them",
		Long: `down ends a lab with everything in it, and waits until its last process has ended. Without a name it
ends the only lab that runs.`,
		ValidArgsFunction: completeLabs,
		RunE: func(cmd *cobra.Command, names []string) error {
			labs, err := chosenLabs(names, all)
			var errs []error
			for _, l := range labs {
				errs = append(errs, end(cmd.Context(), l))
			}
			return errors.Join(append(errs, err)...)
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "end all labs")
	return cmd
}

// chosenLabs returns the named labs, or the only one that runs, or all. It returns those that it finds beside an error.
func chosenLabs(names []string, all bool) ([]registry.Folder, error) {
	if all {
		return registry.List()
	}
	if len(names) == 0 {
		names = []string{""}
	}
	var labs []registry.Folder
	var errs []error
	for _, name := range names {
		l, err := registry.Find(name)
		if err == nil {
			labs = append(labs, l)
		}
		errs = append(errs, err)
	}
	return labs, errors.Join(errs...)
}

// endLimit is how long a lab may take to end before it is killed.
const endLimit = 5 * time.Second

// end ends a lab and returns when its last process has ended.
func end(ctx context.Context, folder registry.Folder) error {
	ended, err := folder.Ended()
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	go func() { _ = ask(ctx, folder, live.Down, nil, nil) }() // it may end before it replies
	select {
	case <-ended:
		return folder.Remove()
	case <-time.After(machine.Limit(endLimit)):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err := kill(folder); err != nil {
		return fmt.Errorf("lab %s does not end: %w", folder.Name, err)
	}
	<-ended // the kernel ends the rest
	return folder.Remove()
}

// kill kills the process whose end is that of the lab. The lab is locked, so the process has not ended.
func kill(folder registry.Folder) error {
	text, err := os.ReadFile(folder.File(registry.Process))
	if err != nil {
		return err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return err
	}
	return syscall.Kill(pid, syscall.SIGKILL)
}
