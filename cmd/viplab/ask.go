// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/viplab/viplab/internal/live/control"
	"github.com/viplab/viplab/internal/live/registry"
)

// ask sends a request to a lab, with the streams of this process.
func ask(ctx context.Context, l registry.Folder, command string, args, result any) error {
	return request(ctx, l, control.Request{
		Command: command, Args: args, Result: result, Stdio: [3]*os.File{os.Stdin, os.Stdout, os.Stderr},
	})
}

// request sends a request to a lab. The exit code of a program in the lab becomes that of the command.
func request(ctx context.Context, l registry.Folder, r control.Request) error {
	err := control.Do(ctx, l.File(registry.Socket), r)
	if exit := (*control.ExitError)(nil); errors.As(err, &exit) {
		return exitCode(exit.Code)
	}
	if err != nil {
		return fmt.Errorf("lab %s: %w", l.Name, err)
	}
	return nil
}
