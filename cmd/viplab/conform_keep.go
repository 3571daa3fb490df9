// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/viplab/viplab/internal/live"
	"github.com/viplab/viplab/internal/live/registry"
	"github.com/viplab/viplab/internal/suite/engine"
	"github.com/viplab/viplab/lab/sandbox"
)

// keptLab is the name of the lab that a run leaves.
const keptLab = "conform"

// enter enters the sandbox. For a run that may leave a lab, it takes along what a lab needs of the machine.
func (f *conformFlags) enter(ctx context.Context) (*live.Sockets, error) {
	if !f.keep && !f.keepFailed {
		return nil, sandbox.Enter(ctx)
	}
	files, err := sandbox.EnterWith(ctx, func() ([]*os.File, error) {
		folder, lock, err := registry.Create(keptLab)
		if err != nil {
			return nil, err
		}
		sockets, err := listen(folder, lock, 0)
		if err != nil {
			return nil, err
		}
		return sockets.Files(), os.WriteFile(folder.File(registry.Process), fmt.Appendln(nil, os.Getpid()), 0o600)
	})
	if err != nil {
		return nil, err
	}
	s := live.FromFiles(files)
	return &s, nil
}

// hold serves the first cluster that the run has kept as a lab, until Ctrl-C or "viplab down".
func (f *conformFlags) hold(ctx context.Context, run *engine.Run, w io.Writer) error {
	if f.kept == nil {
		return nil
	}
	standing := run.Standing()
	if standing == nil {
		return f.kept.Remove(keptLab)
	}
	return live.Keep(ctx, *f.kept, keptLab, standing, switched, func() {
		fmt.Fprintf(w, "\nkept as the lab %s until Ctrl-C or \"viplab down %s\": viplab get, exec and so on, or kubectl: "+
			"see viplab ls\nto look around, put before a command:\n", keptLab, keptLab)
		for _, c := range run.Kept() {
			fmt.Fprintln(w, " ", c)
		}
	})
}
