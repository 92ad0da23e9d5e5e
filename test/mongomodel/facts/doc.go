// Package facts is a list of facts about MongoDB, as a driver sees it, that are checked one by one:
// on the model, or on the server that MONGODB_URI names. Each fact names its source: a page of
// MongoDB's documentation, or a measurement on a real replica set. A fact that holds on the one and
// not on the other is a defect of the model.
//
// To add a fact, add a line to one of the tables, or a function where a table cannot say it. The
// fact's needs are the features that its test needs of a server. On a server without one of them,
// the fact is skipped by that name.
package facts
