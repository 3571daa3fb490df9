// SPDX-License-Identifier: Apache-2.0

package program

import (
	"os/exec"
	"strings"
	"testing"
)

func TestOutputIsWhatACommandPrints(t *testing.T) {
	// A grandchild writes after its parent has begun, and shares the file's offset with it.
	text, err := Output(exec.CommandContext(t.Context(), "sh", "-c", "printf a; (printf b); printf c"), (*exec.Cmd).Run)
	if err != nil || text != "abc" {
		t.Errorf("got %q, %v; want abc", text, err)
	}
}

func TestAnErrorHoldsWhatACommandHasSaid(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "sh", "-c", "echo half; echo no table >&2; echo of that name >&2; exit 3")
	text, err := Output(cmd, (*exec.Cmd).Run)
	if err == nil || !strings.Contains(err.Error(), "exit status 3: no table of that name") {
		t.Errorf("got %v, want the exit code and one line of stderr", err)
	}
	if text != "half\n" {
		t.Errorf("got %q, want what it printed before it failed", text)
	}
}

func TestAMissingProgramIsAnError(t *testing.T) {
	if text, err := Output(exec.CommandContext(t.Context(), "no-such-program"), (*exec.Cmd).Run); err == nil {
		t.Errorf("got %q and no error", text)
	}
}
