// SPDX-License-Identifier: Apache-2.0

package faults

import "testing"

func TestBeyondNamesFaults(t *testing.T) {
	for name := range beyond {
		if f, err := Find(name); err != nil || f.Beyond() == "" {
			t.Errorf("%s: %v, reason %q", name, err, f.Beyond())
		}
	}
	if f, _ := Find("endpoint-forgotten"); f.Beyond() != "" {
		t.Errorf("endpoint-forgotten concerns serving, got %q", f.Beyond())
	}
}
