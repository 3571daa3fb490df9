// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"testing"
	"testing/synctest"
)

// An Apply is demanded as soon as half of the scenarios wait for a state that is newer than the applied one.
func TestDemand(t *testing.T) {
	var d demand
	expect := func(want bool, applied uint64) {
		t.Helper()
		if got, _ := d.exceeds(applied); got != want {
			t.Errorf("%d scenarios wait for %v, and %d is applied: demanded: %t", d.scenarios, d.awaited, applied, got)
		}
	}
	expect(false, 0) // no scenario
	leave := d.join()
	d.join()
	d.join()
	expect(false, 0)
	d.await(7)
	expect(false, 6) // one of three
	done := d.await(9)
	expect(true, 6)
	expect(false, 7) // one of three
	expect(false, 9)
	leave()
	expect(true, 7) // one of two
	done()
	expect(false, 7)
	expect(true, 6)
}

// A pause ends early once half of the scenarios wait for a newer state than the applied one.
func TestDemandEndsThePause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d demand
		for range 3 {
			d.join()
		}
		d.await(7)
		a, ended := &agent{demand: &d}, false
		go func() {
			a.pause(t.Context(), 6, nil)
			ended = true
		}()
		synctest.Wait()
		if ended {
			t.Error("the pause has ended although only one of three scenarios waits")
		}
		d.await(8)
		synctest.Wait()
		if !ended {
			t.Error("the pause goes on although two of three scenarios wait")
		}
	})
}
