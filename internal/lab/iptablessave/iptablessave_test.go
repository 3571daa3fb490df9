// SPDX-License-Identifier: Apache-2.0

package iptablessave_test

import (
	"errors"
	"testing"

	"github.com/viplab/viplab/internal/lab/iptablessave"
)

func TestReadRetriesOnlyWhenASetIsGone(t *testing.T) {
	gone := errors.New("exit status 2: iptables-save v1.8.9 (legacy): Set with index 0 in kernel doesn't exist.")
	other := errors.New("exit status 1: no such table")
	answers := []error{gone, gone, nil, other}
	calls := 0
	save := func() (string, error) {
		calls++
		return "rules", answers[calls-1]
	}
	if out, err := iptablessave.Read(t.Context(), save); out != "rules" || err != nil || calls != 3 {
		t.Errorf("%q, %v after %d calls; want the rules after 3", out, err, calls)
	}
	if _, err := iptablessave.Read(t.Context(), save); !errors.Is(err, other) || calls != 4 {
		t.Errorf("%v after %d calls; want the other error at once", err, calls-3)
	}
}
