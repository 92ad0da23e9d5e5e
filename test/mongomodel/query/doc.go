// Package query is MongoDB's document language for a model of its server: filters, updates, sorts,
// projections and aggregation pipelines, evaluated on BSON. It is pure: no goroutine, no clock, no
// collection. It knows the operators that Sluice and its tests use; any other is an error that
// names it, never a guess.
//
// To add an operator of filters, see newPredicate; of updates, updateOperators; a stage,
// parseStage; an expression, parseExpression. All follow the server's manual:
// https://www.mongodb.com/docs/manual/reference/operator/.
package query
