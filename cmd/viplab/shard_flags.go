// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/viplab/viplab/internal/suite/engine"
	"github.com/viplab/viplab/internal/suite/report"
)

// shardFlags select a part of the scenarios.
type shardFlags struct{ shard, times string }

// indexVariable has the number of a pod of an Indexed Job, counted from 0.
const indexVariable = "JOB_COMPLETION_INDEX"

func (f *shardFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.shard, "shard", "", "run part I of N of the scenarios, written I/N; auto/N in a pod of "+
		"an Indexed Job of Kubernetes, whose $"+indexVariable+" is I-1")
	cmd.Flags().StringVar(&f.times, "shard-times", "", "balance the shards by the times in this report of an earlier "+
		"run (report.json, or its folder), which must be the same for all shards")
}

// set sets the shard in the options. It replaces auto by the number, so that reports have it.
func (f *shardFlags) set(o *engine.Options) (err error) {
	if f.shard == "" {
		if f.times != "" {
			return errors.New("--shard-times requires --shard")
		}
		return nil
	}
	if of, ok := strings.CutPrefix(f.shard, "auto/"); ok {
		index, err := strconv.Atoi(os.Getenv(indexVariable))
		if err != nil {
			return fmt.Errorf("--shard: %s: want a pod of an Indexed Job, but $%s is %q", f.shard, indexVariable,
				os.Getenv(indexVariable))
		}
		f.shard = fmt.Sprintf("%d/%s", index+1, of)
	}
	if o.Shard, o.Shards, err = report.ParseShard(f.shard); err != nil {
		return inFlag("shard", err)
	}
	if f.times == "" {
		return nil
	}
	r, err := report.Read(f.times)
	if err != nil {
		return inFlag("shard-times", err)
	}
	o.Times = map[string]time.Duration{}
	for _, x := range r.Results {
		o.Times[x.Scenario] += time.Duration(x.TookMS) * time.Millisecond
	}
	return nil
}
