// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"errors"
	"testing"
)

func TestCatch(t *testing.T) {
	wrong := errors.New("wrong")
	if err := Catch(func() error { TryDo(nil); return nil }); err != nil {
		t.Errorf("nothing went wrong, but Catch returns %v", err)
	}
	if err := Catch(func() error { Try(1, wrong); return nil }); err != wrong {
		t.Errorf("Try ends with %v, want it as it is", err)
	}
	if err := Catch(func() error { return wrong }); err != wrong {
		t.Errorf("an error that is returned becomes %v", err)
	}
	var fault *HarnessError
	if err := Catch(func() error { MustDo(wrong); return nil }); !errors.As(err, &fault) || !errors.Is(err, wrong) {
		t.Errorf("Must ends with %v, want a HarnessError", err)
	}
	defer func() {
		if p := recover(); p != "other" {
			t.Errorf("another panic becomes %v", p)
		}
	}()
	_ = Catch(func() error { panic("other") })
}
