// SPDX-License-Identifier: Apache-2.0

package exec

import (
	"errors"
	"fmt"

	"mvdan.cc/sh/v3/shell"
)

// Split splits a command line into words as a POSIX shell does, and expands environment variables. It does not run a
// shell: pipes, redirections and other shell features are errors. A template action that contains blanks needs quotes.
func Split(line string) ([]string, error) {
	words, err := shell.Fields(line, nil)
	if err == nil && len(words) == 0 {
		err = errors.New("it is empty")
	}
	if err != nil {
		return nil, fmt.Errorf("command %q: %w (no shell runs it; for what needs one, write sh -c '...')", line, err)
	}
	return words, nil
}
