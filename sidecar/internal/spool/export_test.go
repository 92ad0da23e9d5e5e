package spool

// SetPage makes the pages of a drain smaller; before Run.
func (l *Log) SetPage(events int) { l.drain.whole.Events = events }
